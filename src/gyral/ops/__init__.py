"""Pure tensor functions, with a folder for each family of functions that has its own kernels."""
