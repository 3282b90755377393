"""Scenes of objects with questions about them, generated or those of CLEVR."""
