"""Targets for a fuzzer that is guided by coverage: `make fuzz SECONDS=60`. Each module is one target."""
