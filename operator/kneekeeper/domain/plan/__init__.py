"""The state machines: `run.decide` and `profile.decide` turn what was observed into a new status and actions.

Both are pure functions of what is stored and what is seen, so that an operator killed at any point goes on
where it was. The order of effects is fixed: evidence is stored, then the status, then the actions.
"""
