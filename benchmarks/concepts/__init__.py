"""The figures of docs/concepts.md, drawn from the twin: `make figures`."""
