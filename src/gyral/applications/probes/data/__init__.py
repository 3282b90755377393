"""Minimal pairs of a grammatical and an ungrammatical sentence."""
