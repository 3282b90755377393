"""Fast-slow networks on a GPU: a step of each subcell is a product or two and one kernel for all rows.

The kernels are those of `gyral.ops.gated.triton.steps` and `gyral.ops.rum.triton.steps`. The host launches the steps,
for which it reads no values: a CUDA graph can record them. RUM runs as the slow subcell alone, because its kernels read
h before a step from its own outputs.
"""

import functools
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from gyral.ops.compilation import compiles_only
from gyral.ops.fast_slow import OPERATOR
from gyral.ops.fast_slow.naive import SLOW
from gyral.ops.gated import KEEPS_PRODUCT
from gyral.ops.gated.triton import steps as gated_steps
from gyral.ops.native.products import project, project_backward, recurrent_gradient, sum_outer
from gyral.ops.operator import KernelUnavailableError
from gyral.ops.rum.triton import launch as rum_launch
from gyral.ops.rum.triton import steps as rum_steps
from gyral.ops.triton.launch import as_bytes, difference, preparation, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results; and saved of each subcell: parts, cell states, last products or RUM's scales, and outputs.

    The outputs of the last subcell are a result.

    Raises:
        KernelUnavailableError: A fast subcell is RUM.
    """
    kinds, (steps, batch, _), new = a.kinds.split(), a.x.shape, a.x.new_empty
    saved, outputs = [], []
    for index, kind in enumerate(kinds):
        if kind == "rum" and index != SLOW:
            raise KernelUnavailableError("the kernels for a GPU run RUM as a slow subcell alone")
        hidden, cell_state = _state(a, index)
        kept: Tensor | None = None
        if kind in KEEPS_PRODUCT:
            kept = new(steps, batch, a.units[index])
        elif kind == "rum" and a.weights[4 * index + 3] is not None:
            kept = new(steps, batch, 2)
        cell_states = new(steps, *cell_state.shape) if "lstm" in kind and cell_state is not None else None
        saved += [new(steps, batch, len(a.weights[4 * index])), cell_states, kept]
        outputs.append(new(steps, *hidden.shape))
    results = [outputs[-1], *(None if leaf is None else torch.empty_like(leaf) for leaf in a.states)]
    cosines = new(len(kinds), steps, batch) if "rum" in kinds else None
    return [*results, cosines], [*saved, *outputs[:-1]]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    _, *final, cosines = results
    if cosines is not None:
        cosines.fill_(1.0)
    subcells = _subcells(a, results, saved)
    for own in subcells:
        own.begin(final, cosines)
    with torch.cuda.device_of(a.x):
        for t in range(min(len(a.x), 1) if compiles_only() else len(a.x)):
            for own in subcells:
                own.forward(t)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`. They take the place of what `forward` has saved."""
    grad_outputs, *grad_final, _ = gradients
    subcells = _subcells(a, results, saved)
    subcells[-1].grad_outputs = grad_outputs
    for own in reversed(subcells):  # one makes memory for the gradient of the outputs that it has read
        own.begin_backward(grad_final)
    last = len(a.x) - 1
    with torch.cuda.device_of(a.x):
        for t in range(last, max(last - 1, -1) if compiles_only() else -1, -1):
            for own in reversed(subcells):
                own.backward(t)
    found = [own.end_backward(needs) for own in subcells]
    states = [gradient for own in (subcells[0], subcells[SLOW]) for gradient in own.state_gradients()]
    return {"x": found[0].pop("x"), "weights": [each for own in found for each in own.values()], "states": states}


def _state(a: Any, index: int) -> tuple[Tensor, Tensor | None]:
    """Return h and c before the first step of the state that a subcell updates."""
    first = 2 * (index == SLOW)
    return a.states[first], a.states[first + 1]


def _subcells(a: Any, results: list[Any], saved: list[Any]) -> list["_SubCell"]:
    """Return the subcells of a call, in the order in which they run."""
    count = len(a.units)
    outputs = [*saved[3 * count :], results[0]]
    kinds = [_RUM if kind == "rum" else _Gated for kind in a.kinds.split()]
    subcells: list[_SubCell] = [
        make(a, index, saved[3 * index : 3 * index + 3], outputs[index]) for index, make in enumerate(kinds)
    ]
    carried: dict[bool, tuple[Tensor, Tensor, Tensor | None]] = {}
    for index, own in enumerate(subcells):
        is_slow, is_last = index == SLOW, index == count - 1
        own.source = subcells[index - 1] if 0 < index <= SLOW + 1 else None
        own.reader = subcells[index if is_slow else 0 if is_last else max(index + 1, SLOW + 1)]
        own.reader.before, own.lags = own, is_slow or index == 0
        own.is_last_update = is_slow or is_last
        if is_slow not in carried:
            carried[is_slow] = (
                torch.empty_like(own.a.h0),
                torch.empty_like(own.a.h0),
                None if own.a.c0 is None else torch.empty_like(own.a.c0),
            )
        own.carried = carried[is_slow]
    return subcells


class _SubCell:
    """A subcell during a call: what all kinds share.

    Args:
        network: The arguments of the network.
        index: Of the subcell.
        saved: See `allocate`.
        outputs: (T, B, H).

    Attributes:
        a: The arguments of a single recurrence of its kind.
        source: The subcell whose outputs it reads, or None.
        before, reader: The subcells that update its state before it, and that read it next.
        lags: Whether the state before a step is that after the step before.
        is_last_update: Whether it is the last one in a step to update its state.
        carried: Gradients of its state, see `gyral.ops.gated.triton.steps.Recurrence`.
        grad_outputs: (T, B, H), or None for zeros.
        read: (B, H), what the next recurrent product reads, if resets or dropout change h; else None.
        final: h and c after the last step, or their gradients; None for each unless it is the last to update them.
    """

    before: "_SubCell"
    reader: "_SubCell"
    source: "_SubCell | None"
    lags: bool
    is_last_update: bool
    carried: tuple[Tensor, Tensor, Tensor | None]
    grad_outputs: Tensor | None = None
    read: Tensor | None = None
    final: tuple[Tensor | None, Tensor | None]

    def __init__(self, network: Any, index: int, saved: list[Any], outputs: Tensor) -> None:
        self.index, self.outputs = index, outputs
        self.parts, self.cell_states, self.kept = saved
        w_ih, b, w_hh, extra = network.weights[4 * index : 4 * index + 4]
        factors, keep, keep_cell_state, drop = network.masks[4 * index : 4 * index + 4]
        h0, c0 = _state(network, index)
        self.factors = factors
        self.a = SimpleNamespace(
            **{"kind": network.kinds.split()[index], "x": network.x, "w_ih": w_ih, "b": b, "w_hh": w_hh},
            **{"extra": extra, "norms": extra, "h0": h0, "c0": None if self.cell_states is None else c0},
            **{"memory": None, "fresh": None, "keep": keep, "keep_cell_state": keep_cell_state, "drop": drop},
            **{"lengths": network.lengths, "starts": network.starts, "units": network.units[index]},
            **{"chunk": network.chunks[index], "activation": network.activations.split()[index]},
            **{"eta": network.etas[index] or None, "epsilon": network.epsilons[index], "product_dtype": None},
        )

    @property
    def inputs(self) -> Tensor | None:
        """What the input weights read at all steps (T, B, W); None without inputs."""
        given = self.a.x if self.index == 0 else None if self.source is None else self.source.outputs
        return given if given is None or self.factors is None else given * self.factors

    def read_inputs(self, t: int) -> None:
        """Add the products of the input weights to the parts of a step, those of the first subcell excepted."""
        if self.source is not None:
            given = self.source.outputs[t]
            given = given if self.factors is None else given * self.factors[t]
            self.parts[t].addmm_(given, self.a.w_ih.T)

    def read_inputs_backward(self, t: int) -> None:
        """Write the gradient of what the parts of a step have read."""
        if self.source is not None:
            assert self.source.grad_outputs is not None
            gradient = self.source.grad_outputs[t]
            torch.mm(self.parts[t], self.a.w_ih, out=gradient)
            if self.factors is not None:
                gradient *= self.factors[t]

    def begin(self, final: list[Tensor | None], cosines: Tensor | None) -> None:
        """Write to the parts what does not depend on other subcells, and prepare the steps.

        Args:
            final: Memory for the states after the last step.
            cosines: Memory for the cosines of RUM's rotations (S, T, B), or None.
        """
        if self.index == 0:
            assert self.inputs is not None
            project(self.inputs, self.a.w_ih, self.a.b, out=self.parts)
        elif self.a.b is None:
            self.parts.zero_()
        else:
            self.parts.copy_(self.a.b)
        self._set_final(final)

    def begin_backward(self, grad_final: list[Tensor | None]) -> None:
        """Prepare the steps in reverse, given the gradients of the states after the last step."""
        if self.source is not None:
            self.source.grad_outputs = torch.empty_like(self.source.outputs)
        self._set_final(grad_final)

    def _set_final(self, states: list[Tensor | None]) -> None:
        first = 2 * (self.index == SLOW)
        hidden, cell_state = states[first : first + 2]
        self.final = (hidden, cell_state) if self.is_last_update else (None, None)

    def forward(self, t: int) -> None:
        """Take step t."""
        raise NotImplementedError

    def backward(self, t: int) -> None:
        """Take step t back."""
        raise NotImplementedError

    def end_backward(self, needs: dict[str, bool]) -> dict[str, Tensor | None]:
        """Return the gradients of w_ih, b, w_hh and extra in order, and before them that of x, for the first one."""
        found: dict[str, Tensor | None] = {}
        inputs = self.inputs
        if inputs is None:
            found["w_ih"] = torch.zeros_like(self.a.w_ih)
        else:
            found |= project_backward(self.parts, inputs, self.a.w_ih, None, {"x": needs["x"] and self.index == 0})
            gradient = found.pop("x")
            if self.index == 0:
                found = {"x": gradient if gradient is None or self.factors is None else gradient * self.factors} | found
        found["b"] = None if self.a.b is None else self.parts.sum((0, 1))
        return found

    def state_gradients(self) -> tuple[Tensor, Tensor | None]:
        """Return the gradients of h and c before the first step, of the first subcell that reads them."""
        raise NotImplementedError


class _Gated(_SubCell):
    """A subcell of a kind of `gyral.ops.gated`."""

    run: gated_steps.Recurrence

    def _prepare(self) -> None:
        starts = as_bytes(self.a.starts)
        own = gated_steps.recurrence(self.a, self.outputs, [self.parts, self.cell_states, self.kept])
        self.run = own._replace(
            starts=starts if self.lags else None,
            past=self.before.outputs,
            past_cell_states=self.before.cell_states,
            lag=int(self.lags),
            next_starts=starts if self.reader.lags else None,
            next_drop=self.reader.a.drop,
            next_lag=int(self.reader.lags),
        )

    def begin(self, final: list[Tensor | None], cosines: Tensor | None) -> None:
        """Do what the base class does, and write what the first product reads."""
        super().begin(final, cosines)
        self._prepare()
        self.products = self.parts.new_empty(self.parts.shape[1:])
        if self.lags:
            self.read = gated_steps.first_factors(self.a)
        elif self.a.drop is not None:
            self.read = torch.empty_like(self.a.h0)

    def forward(self, t: int) -> None:
        """Take step t."""
        self.read_inputs(t)
        read = self.read
        if read is None:
            past = t - self.lags
            read = self.a.h0 if past < 0 else self.before.outputs[past]
        self.run.forward(t, read, self.products, self.final, self.reader.read)

    def begin_backward(self, grad_final: list[Tensor | None]) -> None:
        """Do what the base class does, and make memory for sums."""
        super().begin_backward(grad_final)
        self._prepare()
        extra = self.a.extra
        self.grad_extra = None if extra is None else extra.new_zeros(len(self.a.h0), *extra.shape)

    def backward(self, t: int) -> None:
        """Take step t back."""
        self.run.backward(t, self.grad_outputs, self.final, self.carried, (self.grad_extra, None))
        self.read_inputs_backward(t)

    def end_backward(self, needs: dict[str, bool]) -> dict[str, Tensor | None]:
        """Return the gradients."""
        parts, kept = self.parts, self.kept
        if kept is None:
            weight = self._recurrent_gradient(parts)
        else:  # the gradient of the product equals the gradient of the parts, except in the kept part
            weight = torch.cat((self._recurrent_gradient(parts[..., : -self.a.units]), self._recurrent_gradient(kept)))
        extra = None if self.grad_extra is None else self.grad_extra.sum(0)
        return super().end_backward(needs) | {"w_hh": weight, "extra": extra}

    def _recurrent_gradient(self, gradients: Tensor) -> Tensor:
        if self.lags:
            return recurrent_gradient(gradients, self.a.h0, self.before.outputs, self.a.starts, self.a.drop)
        read = self.before.outputs if self.a.drop is None else self.before.outputs * self.a.drop
        return sum_outer(gradients.flatten(0, 1), read.flatten(0, 1))

    def state_gradients(self) -> tuple[Tensor, Tensor | None]:
        """Return the gradients of h and c before the first step."""
        hidden, through, cell_state = self.carried
        hidden += through if self.a.drop is None else through * self.a.drop
        if self.a.starts is not None:
            begins = self.a.starts[0].unsqueeze(1)
            hidden = hidden.masked_fill(begins, 0.0)
            cell_state = None if cell_state is None else cell_state.masked_fill(begins, 0.0)
        return hidden, cell_state


class _RUM(_SubCell):
    """RUM with λ = 0, as the slow subcell."""

    def _values(self, is_forward: bool) -> tuple[Any, dict[str, Any]]:
        loop = rum_launch.loop_of(self.a)
        saved = [self.parts, self.kept, None, None, None, None]
        return loop, loop.values_of(self.a, self.outputs, saved, is_forward=is_forward)

    def begin(self, final: list[Tensor | None], cosines: Tensor | None) -> None:
        """Do what the base class does, and bind the kernel of a step."""
        super().begin(final, cosines)
        assert cosines is not None
        loop, values = self._values(is_forward=True)
        self.products = self.parts.new_empty(len(self.a.h0), len(self.a.w_hh))
        values |= {"products": self.products, "final": self.final[0], "cosines": cosines[self.index], "rounded": None}
        self.run: Callable[..., None] = loop.bound(rum_steps.forward_step, values, self.parts)

    def forward(self, t: int) -> None:
        """Take step t."""
        self.read_inputs(t)
        torch.mm(self.a.h0 if t == 0 else self.outputs[t - 1], self.a.w_hh.T, out=self.products)
        self.run(t=t)

    def begin_backward(self, grad_final: list[Tensor | None]) -> None:
        """Do what the base class does, and bind the kernel of a step back."""
        super().begin_backward(grad_final)
        norms, (hidden, through, _) = self.a.norms, self.carried
        self.grad_norms = None if norms is None else norms.new_zeros(len(hidden), *norms.shape)
        loop, values = self._values(is_forward=False)
        values |= {"grad_outputs": self.grad_outputs, "grad_final": self.final[0], "grad_norms": self.grad_norms}
        values |= {"given_outputs": int(self.grad_outputs is not None), "given_final": int(self.final[0] is not None)}
        values |= {"grad_hidden": hidden, "products": through, "rounded": None}
        self.run = loop.bound(rum_steps.backward_step, values, self.parts)

    def backward(self, t: int) -> None:
        """Take step t back."""
        self.run(t=t)
        torch.mm(self.parts[t, :, : len(self.a.w_hh)], self.a.w_hh, out=self.carried[1])
        self.read_inputs_backward(t)

    def end_backward(self, needs: dict[str, bool]) -> dict[str, Tensor | None]:
        """Return the gradients."""
        parts = self.parts[..., : len(self.a.w_hh)]
        weight = recurrent_gradient(parts, self.a.h0, self.outputs, self.a.starts)
        norms = None if self.grad_norms is None else self.grad_norms.sum(0)
        return super().end_backward(needs) | {"w_hh": weight, "extra": norms}

    def state_gradients(self) -> tuple[Tensor, Tensor | None]:
        """Return the gradient of h before the first step, and None."""
        hidden, through, _ = self.carried
        hidden += through
        return hidden if self.a.starts is None else hidden.masked_fill(self.a.starts[0].unsqueeze(1), 0.0), None


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The slow subcells of the examples are an LSTM and RUM.

    All sequences have the same length: in steps after the last one of a sequence, kernels compute with memory without
    values, of which they store nothing, and of whose overflow Triton's interpreter may warn.
    """
    steps, batch, inputs, size = 3, 2, 2, 3
    starts = waves(device, steps, batch) > 0.9
    for slow, rows, parts in (("lstm", 4, 4), ("rum", 2, 3)):
        shapes = [(4, inputs, 4), (parts, size, rows), (4, size, 4)]
        weights: list[Tensor | None] = []
        for own, width, recurrent in shapes:
            weights += [waves(device, own * size, width), waves(device, own * size)]
            weights += [waves(device, recurrent * size, size) / 2, None]
        states = [waves(device, batch, size) for _ in range(4)]
        given = [
            *(waves(device, steps, batch, inputs), weights, states[: 4 - (slow == "rum")] + [None] * (slow == "rum")),
            *([None] * 12, None, starts, f"lstm {slow} lstm", [size] * 3, [1] * 3, "tanh tanh tanh"),
            *([0.0] * 3, [1e-5] * 3),
        ]
        reason = difference(sys.modules[__name__], OPERATOR, given, ("x", "weights", "states"))
        if reason is not None:
            return reason
    return None


prepare = preparation("fast-slow networks", _probe)
