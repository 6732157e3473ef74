"""The site of docs/: pages that are written from code, and what mkdocs is told besides its configuration."""
