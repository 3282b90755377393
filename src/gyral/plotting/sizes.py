"""Widths and formats of figures. Imports no matplotlib."""

SUFFIXES = (".pdf", ".svg", ".png")
WIDTHS = {"column": 3.25, "page": 6.75}  # inches, of a column and of a page of two columns
