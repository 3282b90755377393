"""Minimal pairs: sentences of which a language model should prefer the grammatical one."""
