"""The same decisions as in a cluster, on this machine: a server that is a local process, and one that has a URL.

`place` answers `domain.plan.run.decide` with what a cluster would show (the pod under test is a process, the load
agent is in this process) and does what it decides. Nothing is decided here.
"""
