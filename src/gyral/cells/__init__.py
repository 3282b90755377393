"""Recurrent cells: one file per family, the contract in `base.py`; conf/cell has a file that names each of them."""

import re
from functools import cache

from gyral.core import CONF

TARGET = re.compile(r"^_target_: *(gyral\.cells\.\w+)\.(\w+Cell)\b", re.MULTILINE)

# Options that layers of `torch.nn` take by position, each after the argument that it follows there.
FURTHER = {"num_layers": "nonlinearity", "bidirectional": "proj_size"}


@cache
def modules() -> dict[str, str]:
    """Return the module of each cell by the name of its class."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((CONF / "cell").glob("*.yaml"))]
    return {name: module for text in texts for module, name in TARGET.findall(text)}


@cache
def layers() -> dict[str, str]:
    """Return the name of the class of each layer's cell: that of `RUM` is `RUMCell`."""
    cells = modules().keys() - {"ExternalCell"}  # which is made of a cell of another library
    return {name.removesuffix("Cell"): name for name in sorted(cells)}
