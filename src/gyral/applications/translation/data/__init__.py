"""Parallel corpora: sources, subwords, batches."""
