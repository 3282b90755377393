"""The packages, the long description and the stubs for type checkers; pyproject.toml has everything else."""

import re
import sys
import tomllib
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "src"))

from gyral.nn import stubs  # noqa: E402  it needs nothing that is not part of Python


def long_description() -> str:
    """Return README.md with absolute links, for pages outside of the repository."""
    source = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^]]*\]\()(?!https?://|#)", rf"\1{source}/raw/main/", text)
    return re.sub(r"(?<!!)(\[[^]]*\]\()(?!https?://|#)", rf"\1{source}/blob/main/", text)


stubs.main()  # a wheel and an editable installation have them
folders = [path.parent.relative_to(ROOT) for path in ROOT.glob("conf/**/*.yaml")]
setup(
    # An editable installation must expose these packages and not the stubs beside them.
    packages=[
        *find_packages("src", include=["gyral", "gyral.*"]),
        *sorted({"gyral." + ".".join(folder.parts) for folder in folders}),
        "hydra_plugins",
    ],
    long_description=long_description(),
    long_description_content_type="text/markdown",
)
