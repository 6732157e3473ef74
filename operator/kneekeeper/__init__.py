"""kneekeeper keeps vLLM deployments just below their knee.

Layers, held by import contracts in pyproject.toml:
handlers | cli → actuate | observe → load | engine → domain → api.
"""

__version__ = "0.1.0"
