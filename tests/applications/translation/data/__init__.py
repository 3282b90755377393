"""Parallel corpora."""
