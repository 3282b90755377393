"""Tasks: one file each, with its data, loss, metrics and how an example looks."""
