"""Probes of trained language models: parsing without supervision, and minimal pairs of sentences."""
