"""Data: vocabularies, batching, downloads, and a folder for each family of corpora."""
