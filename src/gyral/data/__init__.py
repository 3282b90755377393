"""Batching and vocabularies: data that know no model."""
