"""A real vLLM without a GPU, for tests: installed once, then started locally or in a pod.

`python -m e2e.realvllm prepare` fills the cache. Modules: `environment` (the venv in the cache),
`tiny_model` (what it serves), `server` (one process on loopback), `manifests` (a Deployment),
`bench_client` (vLLM's own load generator), `exposition` (the shape of /metrics), `scenario` (the
workload and the two settings that the end-to-end test compares).

Nothing here is imported by the operator, and nothing here imports vLLM: it runs in its own venv.
"""
