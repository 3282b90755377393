"""Recurrent cells: one file per family, the contract in `base.py`."""
