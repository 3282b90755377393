"""Tests of gyral.data."""
