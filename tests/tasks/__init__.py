"""Tests of src/tasks."""
