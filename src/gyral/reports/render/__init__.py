"""Reports as text and files."""
