"""Whole lives of a profile at a real API server whose answers are bad, or whose operator is killed.

`python -m tests.chaos --runs N` lives N of them with seeded faults. The operator runs in this process on a virtual
clock; the kubelet, the controllers, the load agent and the engine are played.
"""
