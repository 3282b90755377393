"""Questions about documents, with candidates for the answer and edges between mentions."""
