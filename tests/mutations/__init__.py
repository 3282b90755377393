"""Planted faults: changes one place of the source at a time, and reports which changes `make test` finds."""
