"""Figures of one run: `gyral report figure=<name> run=<run directory>`."""
