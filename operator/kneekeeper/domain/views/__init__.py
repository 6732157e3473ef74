"""Profiles and runs as people are shown them: by the dashboard, as its JSON, and by the command line.

Pure, and without a number that the resources do not give: rounded to four digits, latencies in milliseconds, and
what the twin says of a run's engine. Names of fields are part of both outputs.
"""
