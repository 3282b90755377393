"""Reading comprehension with readers that attend and follow edges."""
