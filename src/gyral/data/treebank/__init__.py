"""Parsed sentences in the brackets of the Penn Treebank."""
