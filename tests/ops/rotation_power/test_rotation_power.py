"""`gyral.ops.rotation_power`; test_contract.py has what every operator keeps."""

import torch
from torch import Tensor

from gyral.ops import rotation
from gyral.ops.rotation_power import rotation_power
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.ops.contract import Contract, Named, each

compiled = skip_without(rotation_power)


def drawn(steps: int, batch: int, size: int, exponent: float) -> tuple[Named, Named]:
    """Return matrices near rotations of many planes, of one plane, and the identity."""
    shape = steps, batch, size, size
    skew = torch.randn(shape, dtype=torch.float64) / size**0.5
    turned = torch.linalg.matrix_exp(0.8 * (skew - skew.mT))
    if batch > 1:
        turned[:, 1] = rotation.matrix(*torch.randn(2, steps, size, dtype=torch.float64)) if size > 1 else 1.0
        turned[-1, 0] = torch.eye(size, dtype=torch.float64)
    return {"rotation": turned + 1e-3 * torch.randn(shape, dtype=torch.float64)}, {"exponent": exponent}


def run(rotation: Tensor, exponent: float, lengths: Tensor | None = None, starts: Tensor | None = None) -> Tensor:
    """Return the powers, with zeros beyond the lengths; there is nothing to reset, because no step reads another."""
    if lengths is None:
        return rotation_power(rotation, exponent)
    beyond = (torch.arange(len(rotation)).unsqueeze(1) >= lengths)[..., None, None]
    identity = torch.eye(rotation.shape[-1], dtype=rotation.dtype)
    return rotation_power(torch.where(beyond, identity, rotation), exponent).masked_fill(beyond, 0.0)


run.__module__ = rotation_power.__module__

CONTRACT = Contract(
    run=run,
    draw=drawn,
    kinds=each(exponent=[0.5, -1.7]),
    # one number, odd and even sizes, and those around one vector and several
    sizes=[(1, 1, 1), (2, 3, 2), (1, 3, 7), (1, 2, 16), (1, 2, 17), (1, 1, 50)],
    small=(6, 9, 3),
    tiny=(1, 2, 3),
    single=2e-5,
)


@for_each("size", [2, 5, 20])
def test_special_matrices(size: int) -> None:
    """The identity, exactly; angles close to π; and NaN, and an eigenvalue of exactly −1, in one matrix of two."""
    identity = torch.eye(size)
    assert torch.equal(rotation_power(identity, 0.3), identity)
    near = torch.randn(2, size, dtype=torch.float64)
    near[1] = -near[0] + 1e-3 * near[1]
    turned = rotation.matrix(*near)
    torch.testing.assert_close(rotation_power(turned, 0.5), rotation.power(turned, 0.5), rtol=0, atol=1e-11)
    half_turn = identity.clone()
    half_turn[0, 0] = half_turn[1, 1] = -1.0
    for broken in (half_turn, torch.full_like(identity, torch.nan)):
        leaf = torch.stack((identity, broken)).requires_grad_()
        powered = rotation_power(leaf, 0.5)
        (gradient,) = torch.autograd.grad(powered.sum(), leaf)
        assert torch.equal(powered[0], identity)
        assert gradient[0].isfinite().all()
        assert powered[1].isnan().all()
        assert gradient[1].isnan().any()
