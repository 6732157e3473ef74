"""All reads: cluster, Prometheus, vLLM and load agents, gathered into one frozen observation a tick."""
