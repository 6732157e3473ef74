"""The `kneekeeper` command."""
