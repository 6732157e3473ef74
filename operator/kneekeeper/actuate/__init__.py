"""All writes: agents, clones, rewrites, rollbacks, status and events. Each is idempotent.

`apply.perform` carries out what a plan decided, `status.write_status` is the only writer of status. Builders
of child objects are pure. May import `kube`, `load`, `domain` and `api`, never `observe`.
"""
