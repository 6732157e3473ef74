"""The errors of the cluster tool; each message ends with the next step."""


class ClusterError(RuntimeError):
    """Something the person who runs the tool can act on: the message says what to do next."""


class CommandFailed(ClusterError):
    """A command ended with an error; the message holds the command and the end of its output."""


class StartFailed(ClusterError):
    """A part of the cluster did not come up; the message holds the end of its log and where the rest is."""
