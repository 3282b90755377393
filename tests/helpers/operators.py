"""torch's own checks of an operator."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only


def check_registration(operator: Any, arguments: tuple[Any, ...]) -> None:
    """Check schema, autograd, fake tensors and tracing of an operator, some of whose arguments require a gradient.

    The backward pass of eager mode overwrites the saved tensors, which `opcheck` compares with those of a compiler;
    so tracing is checked without gradients. That of models with gradients has its own tests.
    """
    torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_autograd_registration"))
    torch.library.opcheck(operator, tree_map_only(Tensor, Tensor.detach, arguments))
