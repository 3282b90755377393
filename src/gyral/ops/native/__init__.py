"""C++ kernels, compiled on first use."""
