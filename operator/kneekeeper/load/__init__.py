"""The load generator and its agent: own process, own pod. Times streams, decides nothing about settings."""
