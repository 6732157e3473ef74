"""All writes: agents, clones, rewrites, rollbacks, status and events. Each is idempotent."""
