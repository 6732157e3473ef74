"""What crosses a border: the custom resources and the load agent's wire format, as pydantic models.

May import pydantic and the standard library, nothing else of this package. `schema` and `crds` turn the
models into CustomResourceDefinitions; they also need PyYAML, and only `make crds` runs them.
"""
