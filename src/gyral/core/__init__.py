"""Foundations of all other subpackages, without Hydra and Lightning."""
