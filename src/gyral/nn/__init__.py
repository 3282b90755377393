"""Cells run over time."""
