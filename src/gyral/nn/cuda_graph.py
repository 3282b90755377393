"""Whole sequences as CUDA graphs, with one launch for all operations: small kernels run faster than they are launched.

A graph has fixed shapes and fixed memory, and runs the same kernels each time. So the function that it records must not
read values on the host, and a function that draws random numbers draws them from the generator of the device.
"""

import contextlib
import functools
import gc
import itertools
import logging
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import is_in_torch_dispatch_mode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from gyral.cells.base import RecurrentCell, State
from gyral.cells.masks import options_version
from gyral.core.compat import is_batched
from gyral.ops.autograd import differentiate
from gyral.ops.compiler import is_traced

log = logging.getLogger(__name__)
MOST_WAITING = 1000  # shapes that are counted
WARM_UPS = 2  # runs before the recording, in which libraries allocate what they keep

Structure = tuple[Any, ...]  # see `_unflatten`
Run = Callable[..., tuple[Tensor, State]]  # of a cell and of structures of tensors and None


class GraphedLoops:
    """Runs functions of cells as CUDA graphs, one for each cell with its options, function, shapes and modes of torch.

    A graph is recorded at the first call, or later, see `run`. That takes as long as several calls without one, and
    keeps all memory of its forward and backward pass. A cell has at most `LIMIT` graphs. Beyond them the plain
    function runs, unless a graph was not in use for the last `PATIENCE` runs of the cell: it is then replaced. The
    plain function also runs for shapes for which there is not enough memory, for weights that a hook computes, and
    where a compiler, another graph or a mode of torch records it.

    A run overwrites what the backward pass of an earlier run of the same graph would read. That backward pass then
    runs its forward pass again, with the same random numbers. Second derivatives are those of the plain function.
    """

    LIMIT = 4
    PATIENCE = 100

    def __init__(self) -> None:
        self._cells: dict[int, _CellGraphs] = {}

    @property
    def count(self) -> int:
        """The number of graphs that have been recorded and are kept."""
        return sum(graph is not None for own in self._cells.values() for graph in own.graphs.values())

    def __deepcopy__(self, memo: dict[int, Any]) -> "GraphedLoops":
        return GraphedLoops()  # a graph belongs to the cell that it was recorded with

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphedLoops, ()

    def run(self, function: Run, cell: RecurrentCell, *arguments: Any, after: int = 1) -> tuple[Tensor, State]:
        """Return the outputs and the state that `function(cell, *arguments)` returns.

        Args:
            function, cell, arguments: What is run.
            after: The number of runs for the same shapes and modes, since the last recording, from which on a graph is
                recorded.
        """
        if is_traced() or is_in_torch_dispatch_mode() or _has_computed_weights(cell):
            return function(cell, *arguments)
        own = self._cells.get(id(cell))
        if own is None:
            own = self._cells[id(cell)] = _CellGraphs(cell)
        leaves, structure = _flatten(arguments)
        holder = cell.holder or cell
        inputs, parameters = [leaf for leaf in leaves if leaf is not None], list(holder.parameters())
        key = (
            function,
            own.options(),
            *_modes(),
            structure,
            *[None if leaf is None else (leaf.shape, leaf.dtype, leaf.device, leaf.requires_grad) for leaf in leaves],
            # a graph reads parameters and buffers where they were when it was recorded
            *[(parameter.data_ptr(), parameter.requires_grad) for parameter in parameters],
            *[buffer.data_ptr() for buffer in holder.buffers()],
        )
        own.runs += 1
        if key not in own.graphs and own.is_due(key, after) and own.make_room(self.LIMIT, self.PATIENCE):
            own.graphs[key] = _record_or_none(_Flat(function, cell, leaves, structure), inputs, parameters)
        if key in own.graphs:
            own.last_runs[key] = own.runs
        graph = own.graphs.get(key)
        if graph is None:
            return function(cell, *arguments)
        output, final = _unflatten(graph(*inputs, *parameters), graph.function.form)
        return output, final


class _CellGraphs:
    """The graphs of one cell, and the numbers of the runs that have used them last. It keeps the cell, and so its id.

    A graph is None for shapes for which there is not enough memory.
    """

    def __init__(self, cell: RecurrentCell) -> None:
        self.cell, self.runs = cell, 0
        self.graphs: dict[Hashable, _Graph | None] = {}
        self.last_runs: dict[Hashable, int] = {}
        self.waiting: Counter[Hashable] = Counter()  # runs without a graph since the last recording
        self._version, self._options = -1, 0

    def options(self) -> int:
        """Return a hash of the options of the cell and its parts, such as a probability, and of their modes."""
        version = options_version()
        if version != self._version:
            attributes = (item for part in self.cell.modules() for item in vars(part).items())
            options = tuple(item for item in attributes if isinstance(item[1], bool | int | float | str | None))
            self._version, self._options = version, hash(options)
        return self._options

    def is_due(self, key: Hashable, after: int) -> bool:
        """Count a run without a graph; return whether one is to be recorded."""
        if len(self.waiting) == MOST_WAITING:
            self.waiting.clear()
        self.waiting[key] += 1
        return self.waiting[key] >= after

    def make_room(self, limit: int, patience: int) -> bool:
        """Return whether there is room for another graph; remove the one that was used least recently, if it may be."""
        if len(self.graphs) == limit:
            oldest = min(self.graphs, key=lambda key: self.last_runs[key])
            if self.runs - self.last_runs[oldest] <= patience:
                return False
            del self.graphs[oldest], self.last_runs[oldest]
        self.waiting.clear()
        return True


class _Flat(nn.Module):
    """A function of a cell as a function of tensors only: those of its arguments, then the parameters."""

    def __init__(self, function: Run, cell: RecurrentCell, leaves: list[Tensor | None], structure: Structure) -> None:
        super().__init__()
        self.function, self.holder, self.structure = function, cell.holder or cell, structure
        vars(self)["cell"] = cell  # the holder, or a part of it
        self.absent = [leaf is None for leaf in leaves]
        self.names = [name for name, _ in self.named_parameters()]
        self.form: Structure = ()  # of the results, after the first run

    def run(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(tensors) - len(self.names)
        return functional_call(self, dict(zip(self.names, tensors[count:], strict=True)), tensors[:count])

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        present = iter(tensors)
        leaves = [None if absent else next(present) for absent in self.absent]
        found, self.form = _flatten(self.function(self.cell, *_unflatten(leaves, self.structure)))
        return tuple(found)


def _has_computed_weights(cell: RecurrentCell) -> bool:
    """Return whether a hook, as of `torch.nn.utils.prune`, computes a weight, in new memory at each call."""
    types = set(map(type, vars(cell).values()))
    if cell.holder is not None:
        types |= set(map(type, vars(cell.holder).values()))
    return any(issubclass(each, Tensor) for each in types)


class _Tree(str):
    """A structure of torch's pytrees as text, which is hashed, with the structure itself."""

    spec: TreeSpec


def _flatten(parts: Sequence[Any]) -> tuple[list[Any], Structure]:
    """Return the leaves of structures of tensors and None, and their form, see `_unflatten`.

    `tree_flatten` alone takes ten times as long for tensors and named tuples of tensors, which most of them are.
    """
    leaves: list[Any] = []
    form: list[Any] = []
    for part in parts:
        if part is None or isinstance(part, Tensor):
            leaves.append(part)
            form.append(None)
        elif hasattr(part, "_make") and all(isinstance(leaf, Tensor) for leaf in part):
            leaves += part
            form.append(type(part))
        else:
            found, spec = tree_flatten(part)
            leaves += found
            form.append(_Tree(spec))
            form[-1].spec = spec
    return leaves, tuple(form)


def _unflatten(leaves: Iterable[Any], form: Structure) -> list[Any]:
    """Return the structures of a form: None for a leaf, a type of named tuples, or a pytree."""
    rest, parts = iter(leaves), []
    for kind in form:
        if kind is None:
            parts.append(next(rest))
        elif isinstance(kind, _Tree):
            parts.append(tree_unflatten(list(itertools.islice(rest, kind.spec.num_leaves)), kind.spec))
        else:
            parts.append(kind._make(itertools.islice(rest, len(kind._fields))))
    return parts


class _Graph:
    """A function of tensors and its backward pass, recorded with fixed inputs, outputs and gradients.

    Args:
        function: What is recorded.
        inputs: Examples of the tensors that change from run to run.
        parameters: The tensors that are read where they are.
    """

    def __init__(self, function: _Flat, inputs: Sequence[Tensor], parameters: Sequence[Tensor]) -> None:
        self.function, self.device = function, inputs[0].device
        self.autocast = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        self.lock = threading.Lock()  # threads share the memory
        self.stream: Any = None
        self.token: object = None  # the run whose values are in the memory; None after its backward pass
        self.inputs = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in inputs]
        aliases = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in parameters]
        fixed = [*self.inputs, *aliases]
        self.gradients: list[Tensor | None] = [None] * len(fixed)
        wanted = [index for index, tensor in enumerate(fixed) if tensor.requires_grad]

        def forward() -> tuple[Tensor, ...]:
            with self._autocast():
                return function.run(*fixed)

        def backward(outputs: Sequence[Tensor], cotangents: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
            given = [(one, other) for one, other in zip(outputs, cotangents, strict=True) if other is not None]
            with torch.autocast("cuda", enabled=False):
                return torch.autograd.grad(
                    [one for one, _ in given],
                    [fixed[index] for index in wanted],
                    [other for _, other in given],
                    allow_unused=True,
                )

        def zeros_like(outputs: Sequence[Tensor]) -> list[Tensor | None]:
            return [torch.zeros_like(output) if output.requires_grad else None for output in outputs]

        with recording(self.device):
            pool = new_pool()
            for _ in range(WARM_UPS):
                with side_stream(self.device):
                    outputs = forward()
                    cotangents = zeros_like(outputs)
                    if any(each is not None for each in cotangents):
                        backward(outputs, cotangents)
            self.replay, outputs = record(forward, pool)
            self.cotangents, self.is_zero = zeros_like(outputs), [True] * len(outputs)
            if any(each is not None for each in self.cotangents):
                self.replay_backward, found = record(lambda: backward(outputs, self.cotangents), pool)
                for index, gradient in zip(wanted, found, strict=True):
                    self.gradients[index] = gradient
        self.outputs = [output.detach() for output in outputs]

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs for inputs and parameters."""
        if all(each is None for each in self.cotangents):
            return tuple(self.run(tensors)[0])
        return _Run.apply(self, *tensors)

    def run(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], object]:
        """Run forward; return copies of the outputs, and the token of this run for `run_backward`."""
        with self.lock, torch.no_grad(), torch.cuda.device_of(self.inputs[0]):
            self._wait()
            self._run_on(tensors)
            return _copies(self.outputs), self.token

    def run_backward(
        self, token: object, random: Tensor, tensors: Sequence[Tensor], gradients: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """Run backward from the gradients of the outputs; return the gradients of inputs and parameters.

        Args:
            token: That of the forward run.
            random: The state of the random numbers before it.
            tensors: Its inputs and parameters.
            gradients: None stands for zeros.
        """
        with self.lock, torch.no_grad(), torch.cuda.device_of(self.inputs[0]):
            self._wait()
            if self.token is not token:
                with self.random_numbers(random):
                    self._run_on(tensors)
            self.token = None
            pairs = []
            for index, (fixed, gradient) in enumerate(zip(self.cotangents, gradients, strict=True)):
                if fixed is None:
                    continue
                if gradient is not None:
                    pairs.append((fixed, gradient))
                elif not self.is_zero[index]:
                    fixed.zero_()
                self.is_zero[index] = gradient is None
            _copy(pairs)
            self.replay_backward()
            copies = iter(_copies([each for each in self.gradients if each is not None]))
            return [None if each is None else next(copies) for each in self.gradients]

    def differentiate(
        self, random: Tensor, tensors: Sequence[Tensor], gradients: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """Return the gradients of inputs and parameters as functions of all these tensors."""
        with torch.enable_grad(), self.random_numbers(random):

            def plain(*tensors: Tensor) -> tuple[Tensor, ...]:
                with self._autocast():
                    return self.function.run(*tensors)

            return differentiate(plain, tensors, gradients)

    @contextlib.contextmanager
    def random_numbers(self, state: Tensor) -> Iterator[None]:
        """Within this context, the random numbers of the device continue from a state."""
        generator = generator_of(self.device)
        before = generator.get_state()
        generator.set_state(state)
        try:
            yield
        finally:
            generator.set_state(before)

    def _autocast(self) -> Any:
        # a recording refuses autocast's cache of weights
        return torch.autocast("cuda", self.autocast[1], self.autocast[0], cache_enabled=False)

    def _run_on(self, tensors: Sequence[Tensor]) -> None:
        _copy(list(zip(self.inputs, tensors, strict=False)))  # the parameters, which follow, are in their place
        self.replay()
        self.token = object()

    def _wait(self) -> None:
        """Wait for the last run, if it was on another stream."""
        stream = current_stream(self.device)
        if self.stream is not None and stream != self.stream:
            stream.wait_stream(self.stream)
        self.stream = stream


class _Run(torch.autograd.Function):
    """A run of a graph, with its backward pass."""

    @staticmethod
    def forward(ctx: Any, graph: _Graph, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.random = generator_of(graph.device).get_state()
        outputs, ctx.token = graph.run(tensors)
        ctx.graph = graph
        ctx.kept_results = 0  # the outputs are copies: see `gyral.nn.arguments.copied`
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(
            *[output for output, gradient in zip(outputs, graph.cotangents, strict=True) if gradient is None]
        )
        ctx.save_for_backward(*tensors)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        graph, tensors = ctx.graph, ctx.saved_tensors
        # the engine enables gradients within a backward pass if and only if `create_graph` is True
        if torch.is_grad_enabled() or any(each is not None and is_batched(each) for each in gradients):
            return None, *graph.differentiate(ctx.random, tensors, gradients)
        return None, *graph.run_backward(ctx.token, ctx.random, tensors, gradients)


def _record_or_none(function: _Flat, inputs: Sequence[Tensor], parameters: Sequence[Tensor]) -> _Graph | None:
    """Return the function as a graph, or None if there is not enough memory."""
    try:
        return _Graph(function, inputs, parameters)
    except torch.OutOfMemoryError:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in inputs)
        name = type(function.cell).__name__
        log.info("%s runs without a CUDA graph for tensors of shapes %s: there is not enough memory", name, shapes)
    return None


def _modes() -> tuple[Any, ...]:
    """Return the modes of torch that determine which operations a graph records."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cuda"),
        torch.get_autocast_dtype("cuda"),
        torch.backends.cuda.matmul.fp32_precision,
        torch.backends.cudnn.fp32_precision,
        torch.are_deterministic_algorithms_enabled(),
    )


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return copies of tensors, which the next run of a graph overwrites."""
    if len(tensors) == 1:
        return [tensors[0].clone()]
    found = [torch.empty_like(tensor) for tensor in tensors]
    _copy(list(zip(found, tensors, strict=True)))
    return found


def _copy(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Copy to the first tensor of each pair, by one kernel for all where dtypes are equal."""
    pairs = [pair for pair in pairs if pair[0].numel() > 0]
    if pairs:
        torch._foreach_copy_([pair[0] for pair in pairs], [pair[1] for pair in pairs])


# ---------------------------------------------------------------- what needs a GPU


def record(function: Callable[[], Any], pool: Any) -> tuple[Callable[[], None], Any]:
    """Record a function as a CUDA graph; return what runs it again, and its result, which that overwrites."""
    graph, stream = torch.cuda.CUDAGraph(), stream_of_recordings(torch.device("cuda", torch.cuda.current_device()))
    # other threads, such as those of data loaders, may call CUDA meanwhile
    with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
        result = function()
    return graph.replay, result


@contextlib.contextmanager
def recording(device: torch.device) -> Iterator[None]:
    """Prepare a device for recordings within this context; they leave its random numbers as they were."""
    generator = generator_of(device)
    with (
        without_collection(),
        warnings.catch_warnings(),
        torch.cuda.device(device),  # recordings are on the current device
    ):
        # torch keeps the autograd graph of the warm-up, which ran on another stream
        warnings.filterwarnings("ignore", "The AccumulateGrad node's stream does not match")
        before = generator.get_state()
        torch.cuda.synchronize()
        try:
            yield
        finally:
            torch.cuda.synchronize()
            generator.set_state(before)


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Collect garbage now, and none within the context: an earlier graph that ends breaks the recording of another."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@functools.cache
def stream_of_recordings(device: torch.device) -> Any:
    """Return the stream of all recordings on a device; libraries keep memory for each stream that they have run on."""
    return torch.cuda.Stream(device)


def side_stream(device: torch.device) -> Any:
    """Return a context on the stream of recordings, without a recording."""
    return torch.cuda.stream(stream_of_recordings(device))


def new_pool() -> Any:
    """Return a pool of memory for the graphs of one function."""
    return torch.cuda.graph_pool_handle()


def current_stream(device: torch.device) -> Any:
    """Return the stream on which kernels run."""
    return torch.cuda.current_stream(device)


def generator_of(device: torch.device) -> torch.Generator:
    """Return the generator of the random numbers of a device."""
    return torch.cuda.default_generators[device.index]
