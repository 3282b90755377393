"""Logical inference between pairs of formulas."""
