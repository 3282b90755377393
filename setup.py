"""The packages and the long description; pyproject.toml has everything else."""

import re
import tomllib
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent


def long_description() -> str:
    """Return README.md with absolute links, for pages outside of the repository."""
    source = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^]]*\]\()(?!https?://|#)", rf"\1{source}/raw/main/", text)
    return re.sub(r"(?<!!)(\[[^]]*\]\()(?!https?://|#)", rf"\1{source}/blob/main/", text)


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
