"""All reads: cluster, Prometheus, vLLM and load agents, gathered into one frozen observation a tick.

`gather` is what the handlers call. The parsers are pure; functions that read are async and decide nothing.
May import `kube`, `load`, `domain` and `api`, never `actuate`.
"""
