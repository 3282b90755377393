"""Box and order embeddings of concepts."""
