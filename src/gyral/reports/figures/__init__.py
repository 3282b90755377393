"""Figures: one module per figure or subject."""
