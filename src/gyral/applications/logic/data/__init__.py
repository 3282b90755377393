"""Logical inference: pairs of formulas of propositional logic and the relation between them."""
