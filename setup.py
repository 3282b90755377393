"""The list of packages; pyproject.toml has everything else.

An editable installation must expose these packages and not the stubs beside them, and conf/ is one of them.
"""

from setuptools import find_packages, setup

setup(packages=[*find_packages("src", include=["gyral", "gyral.*"]), "gyral.conf", "hydra_plugins"])
