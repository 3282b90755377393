"""Tests of src/data."""
