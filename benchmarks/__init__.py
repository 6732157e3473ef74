"""Scripts that make the numbers in the docs; anyone can run them."""
