"""The clients that are compared: each offers one level of load and tells what it measured.

One module for each; it knows the client's options and its report, and nothing of the truth.
"""
