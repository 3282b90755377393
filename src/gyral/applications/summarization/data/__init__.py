"""Articles with summaries."""
