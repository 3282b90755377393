"""Summaries of articles: pointer-generator networks, convolutional summarizers, ROUGE."""
