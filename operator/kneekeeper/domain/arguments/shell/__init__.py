"""A script that a shell runs before it runs vLLM: parsed strictly, evaluated as far as it is certain.

`syntax` is the tree, `parser` makes it of a text, `expansion` makes words of it, `interpreter` follows the
script and lists every command with its words. What it does not know it refuses by name: here-documents, functions,
`case`, arrays, `eval`, and all that could change what vLLM receives unseen.

Source: POSIX.1-2024, Shell Command Language, and the Bash manual where `bash` is named as the shell.
"""
