"""Text corpora."""
