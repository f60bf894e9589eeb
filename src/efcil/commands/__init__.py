"""One file per command: its arguments and its function, whose docstring is its help."""
