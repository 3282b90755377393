"""Text that trained models generate: one module per kind of text."""
