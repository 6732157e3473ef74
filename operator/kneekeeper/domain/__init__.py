"""All decisions, as pure functions of values: no I/O, no clock, no kopf, kubernetes or HTTP imports.

May import `kneekeeper.api`, numpy, scipy and numba.
"""
