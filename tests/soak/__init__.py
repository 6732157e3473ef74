"""Weeks of many profiles in less than an hour: the operator on a virtual clock at a real API server.

`python -m tests.soak` lives them: upgrades, traffic that changes by hour and day, restarts of the operator, faults of
the API server and of metrics, deleted and edited profiles. The kubelet, the controllers, the load agents, the engines
and their users are played; the rest is the operator's own code. What is told at the end: whether anything leaked, and
whether what was promised was kept.
"""
