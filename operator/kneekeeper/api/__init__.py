"""What crosses a border: the custom resources and the load agent's wire format, as pydantic models.

May import pydantic and the standard library, nothing else of this package.
"""
