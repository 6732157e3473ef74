"""The load generator and its agent: own process, own pod. Times streams, decides nothing about settings.

Two processes. The worker (`worker`, `senders`, `pool`, `protocol`) sends prepared bytes at given times, stamps what
comes back, and does nothing else. The agent (`agent`, `stages`, `stage_runner`) renders requests ahead of
time, decodes answers once they have ended, decides when a stage ends, and serves the operator over HTTP.
They talk in `frames`. The operator uses `client` alone.
"""
