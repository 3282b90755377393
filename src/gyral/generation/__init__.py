"""What trained models write."""
