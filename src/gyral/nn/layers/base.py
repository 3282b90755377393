"""The base class of the layers."""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict

import torch
from torch import Tensor
from torch.nn.utils.parametrize import type_before_parametrizations
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from gyral import cells
from gyral.cells.base import RecurrentCell, State
from gyral.cells.inputs import StepInputs
from gyral.cells.masks import first_parameter
from gyral.cells.torch_layer import TorchLayerCell
from gyral.core.checks import check_boolean
from gyral.core.errors import InputError, OptionError, UserError, suggest_name
from gyral.core.signatures import is_open
from gyral.nn.arguments import check_like, check_state, leaves_of, map_leaves, with_leaves
from gyral.nn.layers.docstrings import complete_docstring
from gyral.nn.recurrent import RecurrentBase
from gyral.nn.states import state_form
from gyral.nn.tracing import is_symbolic, record_call


class LayerOptions(TypedDict, total=False):
    """The options that all layers share, for layers with their own constructor; see `Layer`."""

    device: torch.device | str | int | None
    dtype: torch.dtype | None
    backend: str
    locked_dropout: bool
    weight_drop: float


class Layer(RecurrentBase):
    """Base class of the layers. A subclass sets `cell_class`, whose options and docstring it has.

    A layer is called like `torch.nn.GRU`: on inputs (T, B, X), (B, T, X) with `batch_first`, (T, X) or a
    `PackedSequence`. Its state is one tensor (num_layers · directions, B, N) if the state of the cell is one hidden
    vector, else a NamedTuple of such tensors.

    Args:
        input_size: X, the width of the inputs.
        hidden_size: N, the hidden size of each cell.
        num_layers: Number of layers; each reads the outputs of the layer below.
        bias: Whether the cells have biases. False is an error for cells without this option, whose biases are part of
            their equations, or which have none.
        batch_first: Whether inputs and outputs are (B, T, …) instead of (T, B, …).
        dropout: Probability, in [0, 1), of dropout on the outputs of each layer except the last, in training.
        bidirectional: Whether each layer has a second cell that reads the sequence backwards; their outputs are
            concatenated.
        device: Device of the parameters; the default of torch if None.
        dtype: Floating-point dtype of the parameters; the default of torch if None.
        backend: "auto", "reference", "fused", "compile" or "graph"; see `gyral.nn.recurrent.RecurrentBase`.
        locked_dropout: Whether `dropout` drops the same units at all steps of a sequence (Gal and Ghahramani 2016).
        weight_drop: Probability, in [0, 1), that an entry of the recurrent weights is zero in training, the same
            entries at all steps of a sequence (Merity et al. 2018).
        **options: The options of the cell. An option with a name from above has the prefix `cell_`.

    Attributes:
        cell_class: The class of the cells.

    Raises:
        OptionError: An option is out of bounds or has another type, or the cell does not have it.
        UserError: See `gyral.cells.contract.make_cell`.
    """

    cell_class: type[RecurrentCell]
    batch_dimension = 1  # after that of layers and directions

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "cell_class" in vars(cls):
            cls.__doc__ = complete_docstring(cls, Layer.__doc__ or "")
            if "__init__" not in vars(cls):
                cls.__init__ = _constructor(cls)  # type: ignore[method-assign]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        backend: str = "auto",
        locked_dropout: bool = False,
        weight_drop: float = 0.0,
        **options: Any,
    ) -> None:
        arguments: dict[str, Any] = {
            "batch_first": batch_first,
            "dropout": dropout,
            "bidirectional": bidirectional,
            "backend": backend,
            "locked_dropout": locked_dropout,
            "weight_drop": weight_drop,
        }
        known = inspect.signature(self.cell_class).parameters
        names = self._check_names(options)
        options = {name: options[name] for name in names if name in options}  # in the order of the cell
        of_cell = {names[name]: value for name, value in options.items()}
        if "bias" in known:
            of_cell["bias"] = bias
        elif not check_boolean("bias", bias):
            raise OptionError("bias", False, f"must be True: {self.cell_class.__name__} has no option bias")
        factory = partial(self._make_cell, names, hidden_size=hidden_size, **of_cell)
        super().__init__(factory, input_size, num_layers, device=device, dtype=dtype, **arguments)
        if dropout and num_layers == 1:
            warnings.warn(f"dropout={dropout} has no effect with one layer: it acts between layers", stacklevel=3)
        self.hidden_size = hidden_size
        self.bias = bias
        defaults = known | inspect.signature(Layer.__init__).parameters
        given = {"num_layers": num_layers, "bias": bias, **arguments, **options}
        self._shown = [  # strings, since options may be factories that cannot be pickled
            f"{name}={_show(value)}"
            for name, value in given.items()
            if names.get(name, name) not in defaults or value != defaults[names.get(name, name)].default
        ]

    def _check_names(self, options: dict[str, Any]) -> dict[str, str]:
        """Return the options of the cell, by their names here, with their names in its constructor.

        Raises:
            OptionError: The cell does not have an option.
        """
        names = {name: one.name for name, one in _options(self.cell_class).items()}
        for name in (name for name in options if name not in names):
            if not is_open(dict(inspect.signature(self.cell_class).parameters)):
                allowed = [*_named(inspect.signature(Layer).parameters), *names]
                hint = f"{suggest_name(name, allowed)}allowed: {', '.join(allowed)}"
                raise OptionError(name, options[name], f"no such option of {type(self).__name__}; {hint}")
            names[name] = name
        return names

    def _make_cell(self, names: dict[str, str], input_size: int, **options: Any) -> RecurrentCell:
        """Return a cell; an error has the layer's name of the option."""
        try:
            return self.cell_class(input_size, **options)
        except OptionError as error:
            own = next((name for name, of_cell in names.items() if of_cell == error.option), error.option)
            if own == error.option:
                raise
            raise OptionError(own, error.value, error.reason) from error

    def extra_repr(self) -> str:
        return ", ".join([str(self.input_size), str(self.hidden_size), *self._shown])

    def __repr__(self) -> str:
        return f"{type_before_parametrizations(self).__name__}({self.extra_repr()})"

    def forward(
        self,
        inputs: Any = None,
        state: Any = None,
        lengths: Tensor | Sequence[int] | None = None,
        starts: Tensor | None = None,
        input: Any = None,
        hx: Any = None,
    ) -> tuple[Any, Any]:
        """Run over whole sequences.

        Args:
            inputs: (T, B, X); (B, T, X) with `batch_first`; (T, X), one sequence; or a `PackedSequence`. Any of them
                may be the values of `gyral.MaskedInputs` or `gyral.LinkedInputs`, which cells with an external memory
                or edges understand and others read as the values alone. Their other leaves have the same leading
                dimensions, with a `PackedSequence` those of the padded sequences.
            state: The state before the first step, in the form of the state that is returned or as a plain tuple of its
                tensors; the initial state if None. It has no batch dimension if the inputs have none.
            lengths: (B,) integers in [0, T]. Steps beyond the length of a sequence do not change its state, and their
                outputs are zero; the backward direction starts at the end of the sequence. An empty sequence, also
                with T = 0, returns the state that it is given.
            starts: (T, B) bool, (B, T) with `batch_first`, or (T,) without batch dimension: True where a new segment of
                a row begins, such as an episode or a document; see `gyral.nn.recurrent.Recurrent.forward`.
            input, hx: The names of `inputs` and `state` in torch.

        Returns:
            The outputs (…, directions · output size of the cell) of the last layer, in the form of the inputs, and the
            state after the last step of each sequence.

        Raises:
            OptionError: The backend does not support the cell on this device.
            InputError: Inputs, state, lengths or starts have another shape, or inputs or state another device or dtype
                than the parameters, outside autocast, or a tensor is not dense; lengths are not in [0, T]; or an edge
                comes from before the first step.
            UserError: torch exports a layer that is called on a `PackedSequence`; or see `gyral.nn.hooks.refuse_hooks`.
            TypeError: There are no inputs, or two arguments for the inputs or the state.
        """
        is_recorded = is_symbolic(inputs)
        if not is_recorded and (inputs is None or input is not None or hx is not None):
            inputs, state, input, hx = _one_of(inputs=inputs, input=input), _one_of(state=state, hx=hx), None, None
            if inputs is None:
                raise TypeError(f"{type(self).__name__}.forward() missing a required argument: 'inputs'")
            is_recorded = is_symbolic(inputs)
        if is_recorded:
            return record_call(self, inputs, state, lengths, starts, input, hx)
        values = inputs.values if isinstance(inputs, StepInputs) else inputs
        if isinstance(values, PackedSequence):
            return self._run_packed(values, inputs, state, lengths, starts)
        if isinstance(values, Tensor) and values.dim() == 2:
            return self._run_unbatched(values, inputs, state, lengths, starts)
        return self.run(inputs, state, lengths, starts)

    def _run_unbatched(self, values: Tensor, inputs: Any, state: Any, lengths: Any, starts: Any) -> tuple[Tensor, Any]:
        if lengths is not None:
            raise InputError("lengths need inputs with a batch dimension")
        check_like("inputs", values, first_parameter(self.cells[0]))
        if values.shape[1] != self.input_size:
            width = self.input_size
            raise InputError(f"inputs have shape {tuple(values.shape)}, must have (T, B, {width}) or (T, {width})")
        batch = 0 if self.batch_first else 1
        if state is not None:
            checked = check_state(state, state_form(self.cells[0]), len(self.cells))
            state = tree_map(lambda leaf: leaf.unsqueeze(1), checked)
        if isinstance(starts, Tensor) and starts.dim() == 1:
            starts = starts.unsqueeze(batch)
        inputs = tree_map_only(Tensor, lambda leaf: leaf.unsqueeze(batch), inputs)
        outputs, final = self.run(inputs, state, None, starts)
        return outputs.squeeze(batch), tree_map(lambda leaf: leaf.squeeze(1), final)

    def _run_packed(
        self, packed: PackedSequence, given: Any, state: Any, lengths: Any, starts: Any
    ) -> tuple[PackedSequence, Any]:
        if lengths is not None:
            raise InputError("a PackedSequence has its own lengths; lengths must be None")
        if torch.compiler.is_exporting():
            name = type(self).__name__
            raise UserError(
                f"{name}: torch cannot export packed sequences; call the layer on padded inputs with lengths="
            )
        data, batch_sizes, order, inverse = packed
        # as it is packed, longest first: states and masks follow, outputs are packed in the same way
        sequences, lengths = pad_packed_sequence(PackedSequence(data, batch_sizes), self.batch_first)
        further: Any = None if given is packed else given._replace(values=None)
        if state is not None and order is not None:
            checked = check_state(state, state_form(self.cells[0]), len(self.cells), len(lengths))
            state = tree_map(lambda leaf: leaf.index_select(1, order), checked)
        if order is not None:
            batch = 0 if self.batch_first else 1
            starts, further = tree_map_only(
                Tensor, lambda leaf: leaf.to(order.device).index_select(batch, order), (starts, further)
            )
        inputs = sequences if further is None else further._replace(values=sequences)
        outputs, final = self.run(inputs, state, lengths, starts)
        if inverse is not None:
            final = tree_map(lambda leaf: leaf.index_select(1, inverse), final)
        repacked = pack_padded_sequence(outputs, lengths, self.batch_first)
        return PackedSequence(repacked.data, batch_sizes, order, inverse), final

    def split_state(self, state: Any, batch_size: int) -> tuple[State, ...]:
        cells = self._cells()
        checked = check_state(state, state_form(cells[0]), len(cells), batch_size)
        parts = zip(*(leaf.unbind(0) for leaf in leaves_of(checked)), strict=True)
        return tuple(with_leaves(checked, own) for own in parts)

    def join_states(self, states: tuple[State, ...]) -> Any:
        joined = map_leaves(_stack, *states)
        leaves = tree_leaves(joined) if len(joined) != 1 or not isinstance(joined[0], Tensor) else joined
        return leaves[0] if len(leaves) == 1 else joined

    def flatten_parameters(self) -> None:
        """Do nothing; for code that calls it on `torch.nn.GRU`."""


def _one_of(**given: Any) -> Any:
    """Return the value of an argument that has two names, or None."""
    values = [value for value in given.values() if value is not None]
    if len(values) > 1:
        raise TypeError(f"{' and '.join(given)} are the same argument; only one of them may be given")
    return values[0] if values else None


def _named(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """Return the names of parameters, without `**options`."""
    return [name for name, each in parameters.items() if each.kind is not each.VAR_KEYWORD]


def _options(cell_class: type[RecurrentCell]) -> dict[str, inspect.Parameter]:
    """Return the options that a layer has from its cell, by their names there, without `**options`."""
    common, known = _named(inspect.signature(Layer).parameters), inspect.signature(cell_class).parameters
    own = [known[name] for name in _named(known) if name not in ("input_size", "hidden_size", "bias")]
    return {f"cell_{one.name}" if one.name in common else one.name: one for one in own}


def _constructor(layer: type[Layer]) -> Callable[..., None]:
    """Return the constructor of a layer, with a signature that names the options of its cell."""
    signature = inspect.signature(Layer.__init__)
    *common, further = signature.parameters.values()
    own = {name: one.replace(name=name, kind=one.KEYWORD_ONLY) for name, one in _options(layer.cell_class).items()}
    first = [one.kind for one in common].index(further.KEYWORD_ONLY)
    positional = []
    for one in common[:first]:
        positional.append(one)
        if issubclass(layer.cell_class, TorchLayerCell) and (name := cells.FURTHER.get(one.name)) in own:
            positional.append(own.pop(name).replace(kind=one.kind))
    parameters = [*positional, *own.values(), *common[first:]]
    accepted = signature.replace(parameters=[*parameters, further])  # unknown options are an error of `Layer`

    def construct(self: Layer, *arguments: Any, **options: Any) -> None:
        try:
            named = accepted.bind(self, *arguments, **options).arguments
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}.__init__() {error}") from None
        del named["self"]
        super(layer, self).__init__(**named.pop(further.name, {}), **named)

    takes_any = is_open(dict(inspect.signature(layer.cell_class).parameters))
    shown = accepted if takes_any else signature.replace(parameters=parameters)
    construct.__signature__ = shown  # type: ignore[attr-defined]
    construct.__module__, construct.__name__ = layer.__module__, "__init__"
    construct.__qualname__ = f"{layer.__qualname__}.__init__"
    return construct


def _stack(*leaves: Tensor) -> Tensor:
    return torch.stack(leaves) if len(leaves) > 1 else leaves[0].unsqueeze(0)  # a view: memories may be large


def _show(value: Any) -> str:
    """Return the representation of an option's value: of a class its name, of a factory its call."""
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, partial):
        parts = [_show(value.func), *map(_show, value.args), *(f"{k}={_show(v)}" for k, v in value.keywords.items())]
        return f"partial({', '.join(parts)})"
    return repr(value)
