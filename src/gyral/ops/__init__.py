"""Pure tensor functions that the cells are made of."""
