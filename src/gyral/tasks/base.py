"""The base classes of all tasks: the model and the data of a task, and what it offers to commands."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from torch import Tensor, nn

from gyral.cells.inputs import MaskedInputs
from gyral.core.checks import check_boolean, check_choice, check_integer
from gyral.core.errors import OptionError, UserError
from gyral.core.measures import OF_OBJECTIVES, Measure
from gyral.models.attention import ReadoutFactory
from gyral.models.sequence import SequenceModel
from gyral.tasks.data_module import SplitData
from gyral.tasks.metrics import Metrics
from gyral.tasks.objective import Classification, Objective
from gyral.tasks.optimization import Optimization, OptimizerFactory, SchedulerFactory
from gyral.tasks.steps import Steps

if TYPE_CHECKING:
    from gyral.tasks.predicted import Predictions


class ModelFactory(Protocol):
    """Makes a model from the sizes of a task and, if the task needs one, a readout.

    For real inputs, `vocabulary_size` is None and `input_size` is their size.
    """

    def __call__(
        self, *, vocabulary_size: int | None, output_size: int, input_size: int = ..., readout: ReadoutFactory = ...
    ) -> nn.Module: ...


Data = TypeVar("Data", bound=SplitData)


class Task(Steps, ABC, Generic[Data]):
    """A task: data, a model that is made for it, an objective, and metrics.

    This class has what every task has. Tasks on sequences derive from `SequenceTask`.

    Args:
        model: makes the model from `sizes`.
        data: the data module of the task. Its batches are structures of tensors whose first dimension is the rows.
        sizes: keyword arguments for `model`: the sizes that follow from the data.
        objective: the loss, predictions and metrics of the outputs.
        baseline: loss of the best predictor that ignores the inputs or has no memory, in the unit of the loss; or a
            function that returns it for a split, "train", "val" or "test".
        optimizer: makes an optimizer from parameters. None: the task cannot be trained.
        scheduler: makes a learning-rate schedule from the optimizer. None: the learning rate is constant.
            `gyral.tasks.optimization` says when the schedule steps.
        monitor, mode: the metric that decides which checkpoint is the best, and "min" or "max".
        overfit: whether training repeats the first batch. A model that works brings the loss of that batch near zero.
        prefetch: number of training batches that a thread draws ahead. 0: batches are drawn when they are used. The
            results are the same; the thread needs a CPU core that training does not use.
        metrics: the metrics of the task. None: the metrics of the objective for one prediction per row.

    Attributes:
        model_type: required type of the model.
        measures: the measures that reports print, in the order of preference: the first one that a run logs is its main
            measure. By default the measures of the objectives in `gyral.tasks.objective`.
        remarks: remarks on results from other data than the configuration names; their metrics are `data_metrics`.
        small: the options of a tiny example that the class of the data does not name, see
            `gyral.tasks.data_module.SplitData`.
        generators: the functions that generate text with a trained task, for `gyral generate run=…`. Each takes the
            task and keyword-only arguments, which are options of the command, and yields text for standard output. If
            there are several functions, the given options select one.
        figures: the functions that draw a figure of a run, for `gyral report figure=<name> run=…`. Each takes a
            `gyral.runs.directory.Run`, or several if it can show them beside each other, and returns a matplotlib
            `Figure`; or a tuple of the figure and the frames of an animation (None: none was recorded).
        evaluations: the functions that evaluate a trained task beyond its metrics, for `gyral evaluate run=…`. Each
            takes the task, a `gyral.runs.evaluation_report.Request`, and keyword-only arguments, which are options of
            the command: `name.option=…`, or `name=…` for the option that has the name of the evaluation. It prints,
            saves and returns its results, or it adds to the usual evaluation and returns None.
        predictor: dotted name of the function that predicts for inputs of a user's own, for `gyral predict run=…` and
            `predict`. It takes the task and the inputs, such as the path of a file, yields tables of predictions with
            the same columns, and returns the metrics; see `gyral.tasks.predicted.Tables`. The first line of its
            docstring describes its inputs. Empty: there is none.
        unit: what `batch_size_in_units` counts, in the plural. The speed of training is logged as
            `train/<unit>_a_second`.
        lr: the learning rate, in place of that of the optimizer's options. None: that of the options. `Tuner.lr_find`
            of Lightning sets it.
        train_loss: mean training loss over the last logging interval; None before the first.

    Raises:
        OptionError: the monitored metric or the mode is unknown, or `prefetch` is not allowed.
    """

    measures: tuple[Measure, ...] = OF_OBJECTIVES
    small: ClassVar[Mapping[str, Any]] = {}
    # dotted names of functions, by name: a command imports them, and training does not
    generators: ClassVar[Mapping[str, str]] = {}
    figures: ClassVar[Mapping[str, str]] = {}
    evaluations: ClassVar[Mapping[str, str]] = {}
    predictor: ClassVar[str] = ""
    model_type: type[nn.Module] = nn.Module
    unit = "examples"

    def __init__(
        self,
        model: Callable[..., nn.Module],
        data: Data,
        *,
        sizes: dict[str, Any],
        objective: Objective,
        baseline: float | Callable[[str], float],
        optimizer: OptimizerFactory | None = None,
        scheduler: SchedulerFactory | None = None,
        monitor: str = "val/loss",
        mode: str = "min",
        overfit: bool = False,
        prefetch: int = 0,
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__()
        self.objective = objective
        self.data = data
        self.data.overfit = check_boolean("overfit", overfit)
        self.data.prefetch = check_integer("prefetch", prefetch, minimum=0)
        if prefetch and data.follows_training:
            raise OptionError("prefetch", prefetch, "must be 0: the batches of this task depend on its curriculum")
        self._baseline = baseline
        self._baselines: dict[str, float] = {}
        self.baseline = self.baseline_of("test")
        self.model: Any = model(**sizes)
        self.metrics = self.objective.metrics(per_step=False) if metrics is None else metrics
        self.monitor = check_choice("monitor", monitor, [f"val/{name}" for name in self.metrics.names])
        self.mode = check_choice("mode", mode, ("min", "max"))
        self.optimization = Optimization(optimizer, scheduler)

    def baseline_of(self, split: str) -> float:
        """Return the baseline on a split: "train", "val" or "test"."""
        if not callable(self._baseline):
            return self._baseline
        if split not in self._baselines:
            self._baselines[split] = self._baseline(split)
        return self._baselines[split]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if hasattr(cls, "constants"):
            raise TypeError(f"{cls.__name__}.constants: the name of this method is data_metrics")
        for kind in ("generators", "figures", "evaluations"):
            if not isinstance(getattr(cls, kind), Mapping):  # it was a method before version 0.2.0
                raise TypeError(f'{cls.__name__}.{kind}: must be a dictionary, {{"name": "module.function"}}')

    @abstractmethod
    def render(self, batch: Any, predicted: Tensor, row: int = 0) -> str:
        """Draw one example as lines of text: input, target and prediction.

        Args:
            batch: the batch that has the example.
            predicted: predictions in the form of the targets.
            row: row of the example in the batch.
        """

    @abstractmethod
    def forward(self, batch: Any) -> Any:
        """Return the outputs of the model for a batch, in the form that `objective` expects."""

    def predict(self, batch: Any) -> Any:
        """Return the predictions in the form of the targets, for `render`: the most likely classes, or real values.

        Args:
            batch: a batch of the task's data. Or your own inputs that the task reads, see `predictions`; their
                predictions are a `pandas.DataFrame` with a row for each of them, or for each step.
        """
        if self.predictor and not hasattr(batch, "_fields"):  # batches of these tasks are named tuples
            return self.predictions(batch).frame()
        return self.objective.predict(self(batch))

    def predictions(self, data: Any) -> "Predictions":
        """Return the predictions for your own inputs, which are made piece by piece while they are read.

        Args:
            data: the path of a file, or what else the function says that `predictor` names, such as arrays.

        Raises:
            OptionError: the task does not read such inputs, or these cannot be read; also during the predictions.
        """
        if not self.predictor:
            raise OptionError("data", str(data)[:60], f"{type(self).__name__} cannot predict for your own inputs")
        from gyral.tasks.predicted import Predictions  # now: training predicts nothing of a user's own

        module, _, name = self.predictor.rpartition(".")
        return Predictions(self, getattr(import_module(module), name)(self, data))

    def predict_step(self, batch: Any, index: int) -> Any:
        """Return the predictions for all rows of a batch, of which `trainer.predict` makes a list.

        In this base class, they are those of `predict`. A task that generates texts returns a list of texts.
        """
        return self.predict(batch)

    def batch_size_in_units(self, batch: Any) -> int:
        """Return the size of a batch in `unit`; in this base class, the number of rows."""
        return len(self.targets(batch))

    def state_size(self) -> int:
        """Return the number of values that the model carries from step to step; 0 without sequences."""
        return 0

    @classmethod
    def described_data(cls, checkpoint: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the constructor for which a trained task needs no data, to predict for other inputs.

        Args:
            checkpoint: the contents of a checkpoint of this class of tasks.

        Returns:
            the arguments by name; in this base class none: the task is built with its data.
        """
        return {}

    @classmethod
    def load_from_checkpoint(
        cls, checkpoint_path: str | PathLike[str], map_location: Any = None, *, trust: str | Sequence[str] = ()
    ) -> Self:
        """Return the trained task of a checkpoint in eval mode, built from the configuration in the checkpoint.

        It is what `gyral.load` returns. Lightning's own method calls the constructor of the class with what the file
        contains. Here, the file is read as plain values and tensors; it cannot execute code.

        Args:
            checkpoint_path: the file that a trainer has written.
            map_location: the device of the task, such as "cpu". None: that of the trainer in the configuration.
            trust: the modules besides Gyral's own that the configuration may name, see `gyral.load`.

        Raises:
            UserError: the file is not a checkpoint, has no configuration, is of another class of tasks, or names what
                is not trusted.
        """
        # a task does not know the configuration from which it was built
        task = import_module("gyral").load(checkpoint_path, trust=trust)
        if not isinstance(task, cls):
            raise UserError(f"{checkpoint_path}: is a checkpoint of {type(task).__name__}, not of {cls.__name__}")
        return task if map_location is None else task.to(map_location)


class SequenceTask(Task[Data]):
    """A task on sequences of tokens or real vectors that predicts classes or real values, per step or per sequence.

    A task has either `vocabulary_size` or `input_size`, and either `output_size` or `objective`.

    Args:
        model: makes the model from the sizes of the task.
        data: the data module of the task. Its batches have the fields of `gyral.data.batching.Batch`.
        baseline: loss of the best predictor without memory, in the unit of the loss; or a function, as for `Task`.
        vocabulary_size: number of input tokens.
        input_size: X, size of real inputs.
        output_size: number of classes; the objective is `Classification(output_size)`.
        objective: the loss, predictions and metrics of the outputs; `Regression(Y)` for targets of Y real values.
        readout: makes the module that predicts once per sequence, such as `gyral.models.attention.LastStep`. None: one
            prediction per step.
        metrics: the metrics of the task. None: the metrics of the objective.
        max_writes: the largest number of steps of one sequence, in any split or test, that write to a memory. It
            determines the capacity of external memories. None: no bound.
        **options: see `Task`: optimizer, scheduler, monitor, mode, overfit, prefetch.

    Attributes:
        causal: whether later inputs contain the targets, so that the model must not read ahead.

    Raises:
        OptionError: the monitored metric or the mode is unknown, or the capacity of an external memory is below
            `max_writes`.
    """

    causal = False
    model_type: type[nn.Module] = SequenceModel
    unit = "tokens"

    def __init__(
        self,
        model: ModelFactory,
        data: Data,
        *,
        baseline: float | Callable[[str], float],
        vocabulary_size: int | None = None,
        input_size: int | None = None,
        output_size: int | None = None,
        objective: Objective | None = None,
        readout: ReadoutFactory | None = None,
        metrics: Metrics | None = None,
        max_writes: int | None = None,
        **options: Any,
    ) -> None:
        if (vocabulary_size is None) == (input_size is None):
            raise TypeError("a task has either vocabulary_size, for tokens, or input_size, for real inputs")
        if objective is None and output_size is not None:
            predicted: Objective = Classification(output_size)
        elif objective is not None and output_size is None:
            predicted = objective
        else:
            raise TypeError("a task has either output_size, for classes, or an objective")
        further = {"input_size": input_size, "readout": readout}
        sizes: dict[str, Any] = {"vocabulary_size": vocabulary_size, "output_size": predicted.output_size}
        sizes |= {name: value for name, value in further.items() if value is not None}
        super().__init__(
            model,
            data,
            sizes=sizes,
            objective=predicted,
            baseline=baseline,
            metrics=predicted.metrics(per_step=readout is None) if metrics is None else metrics,
            **options,
        )
        if max_writes is not None:
            self.reserve(max_writes)

    def reserve(self, writes: int) -> None:
        """Size the external memories of the model for sequences with at most `writes` writes.

        Raises:
            OptionError: a memory has a fixed capacity below `writes`.
        """
        for module in self.model.modules():
            if hasattr(module, "reserve"):  # a cell with an external memory
                module.reserve(writes)

    def forward(self, batch: Any) -> Tensor:
        """Return the outputs of the model: logits (B, …, classes), or real values (B, …, Y)."""
        steps = getattr(batch, "steps", None)
        chosen = {} if steps is None else {"steps": steps}
        return self.model(self.model_inputs(batch), lengths=batch.lengths, **chosen)[0]

    def predict(self, batch: Any) -> Any:
        if not (hasattr(batch, "_fields") or hasattr(batch, "lengths")):  # inputs of a user's own, not a batch
            return self.predictions(batch).frame()
        return super().predict(batch)

    def model_inputs(self, batch: Any) -> Any:
        """Return the inputs of the model, with a mask of the steps that may write to a memory if the batch has one.

        A task with other inputs per step, such as edges, overrides this method.
        """
        write = getattr(batch, "write", None)
        return batch.inputs if write is None else MaskedInputs(batch.inputs, write)

    def tokens(self, batch: Any) -> int:
        """Return the number of input tokens of a batch, or of steps with real inputs, including padding."""
        inputs = batch.inputs
        return inputs.shape[:2].numel() if inputs.is_floating_point() else inputs.numel()

    def batch_size_in_units(self, batch: Any) -> int:
        return self.tokens(batch)

    def state_size(self) -> int:
        size: int = self.model.state_size()
        return size
