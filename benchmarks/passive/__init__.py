"""Knees of replicas in production, found without a probe, against those that a ramp finds on the same engine."""
