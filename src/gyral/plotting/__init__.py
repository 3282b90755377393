"""The style, layout and files of all figures."""
