"""Recurrences with gates that do not read the state, h_t = a_t ⊙ h_{t−1} + b_t.

`min_gated` is minGRU or minLSTM (Feng et al., "Were RNNs all we needed?", 2024):
h_t = (1 − z_t) ⊙ h_{t−1} + z_t ⊙ g(c_t), with g(c) = c + ½ if c ≥ 0, else σ(c)
minGRU: z_t = σ(k_t);  minLSTM: z_t = σ(i_t) / (σ(f_t) + σ(i_t))

`rg_lru` is that of Griffin; see `gyral.cells.rg_lru`. `blend` is h_t = σ(u_t) ⊙ h_{t−1} + (1 − σ(u_t)) ⊙ f(c_t). These
two have kernels on a GPU alone; on a CPU they are functions of torch around `diagonal_scan`.
"""

from pathlib import Path
from typing import Any

from gyral.ops.min_gated import naive
from gyral.ops.min_gated.naive import coefficients
from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator

__all__ = ["blend", "coefficients", "min_gated", "rg_lru"]

TRITON = "gyral.ops.diagonal.triton"


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    steps, batch, width = a.projected.shape
    size = a.h0.shape[1]
    return {"steps": steps, "batch": batch, "size": size, "gates": width // size - 1}


KERNELS = Kernels(
    Path(__file__).with_name("min_gated.cpp"),
    sizes=sizes,
    results={"outputs": lambda a: a.projected.new_empty(*a.projected.shape[:2], a.h0.shape[1]), "final": like("h0")},
    states={"h0": "final"},
    gradients={"projected": like("projected")},
)
min_gated = Operator(naive.min_gated, {"cpu": KERNELS, "cuda": TRITON}, unread=1)
rg_lru = Operator(naive.rg_lru, {"cuda": f"{TRITON}.rg_lru"}, constant=1, unread=2)
blend = Operator(naive.blend, {"cuda": TRITON}, unread=1)
