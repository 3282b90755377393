"""Foundations of all other subpackages, without Hydra and Lightning."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
CONF = PACKAGE / "conf" if (PACKAGE / "conf").is_dir() else PACKAGE.parents[1] / "conf"  # in a wheel, or in a checkout
