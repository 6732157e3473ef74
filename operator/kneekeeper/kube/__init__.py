"""The Kubernetes API as plain dicts: one small client, its errors, and what reads and writes share.

Below `observe` and `actuate`, which both use it. Objects of other makers are never parsed by strict models:
a field that is new to the client library must not break a read.
"""
