"""A simulated vLLM server: vLLM's flags, endpoints, metrics and errors over a model of its scheduler.

`arguments` and `configuration` are vLLM's command line and its rules, `hardware` what no flag says,
`memory` and `steptime` what follows from both, `core` the engine, `connection`, `application`, `requests`
and `answers` the HTTP side, `metrics` what it exposes, `server` the life of the process.
"""

VLLM_VERSION = "0.32.0"
"""The version whose behaviour this is."""
