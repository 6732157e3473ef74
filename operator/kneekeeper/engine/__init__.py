"""A simulated vLLM server: vLLM's flags, endpoints, metrics and errors over a model of its scheduler."""
