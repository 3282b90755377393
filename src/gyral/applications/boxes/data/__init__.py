"""Concepts: hierarchies of hypernyms and conditional probabilities of pairs of concepts."""
