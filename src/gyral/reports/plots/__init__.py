"""Plots of several runs: `gyral report sweep=<name or directory> save=<file>`."""
