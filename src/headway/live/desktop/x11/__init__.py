"""A small X11 client: it learns whose window is in the foreground, and nothing else."""
