"""Run directories: configuration, provenance, metrics, checkpoints, and records of them for reports."""
