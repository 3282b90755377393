"""Subjects that a memory is applied to, one folder each. Nothing outside imports them; they do not import each
other."""
