"""A script that a shell runs before it runs vLLM: parsed strictly, evaluated as far as it is certain.

`syntax` is the tree, `parser` and `word_parser` make it of a text, `expansion` makes words of it, `interpreter`
follows the script and lists every command with its words, `launch` finds the engine's among them. What is not known
is refused by name: here-documents, functions, `case`, arrays, `eval`, and all that could change what vLLM receives
unseen.

Source: POSIX.1-2024, Shell Command Language, and the Bash manual where `bash` is named as the shell.
"""
