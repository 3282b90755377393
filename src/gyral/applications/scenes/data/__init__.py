"""Scenes of objects with questions about them, generated or from CLEVR."""
