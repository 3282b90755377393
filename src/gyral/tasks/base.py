"""The base classes of all tasks: training step, evaluation, logging, and the state that checkpoints hold."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

import torch
from pytorch_lightning import LightningModule
from torch import Tensor, nn

from gyral.cells.inputs import MaskedInputs
from gyral.core.checks import check_boolean, check_choice, check_integer
from gyral.core.collectives import all_gather_object, local_rows, rank, world_size
from gyral.core.errors import OptionError, UserError
from gyral.core.forms import check_number
from gyral.core.measures import OF_OBJECTIVES, Measure, Remark
from gyral.data.batching import Stream
from gyral.models.attention import ReadoutFactory
from gyral.models.sequence import SequenceModel
from gyral.tasks.data_module import SplitData
from gyral.tasks.metrics import Metrics
from gyral.tasks.objective import Classification, Objective
from gyral.tasks.optimization import Optimization, OptimizerFactory, SchedulerFactory

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


class Task(LightningModule, ABC, Generic[Data]):
    """A task: data, a model that is made for it, an objective, and metrics.

    This class has what every task has. Tasks on sequences derive from `SequenceTask`.

    Args:
        model: makes the model from `sizes`.
        data: the data module of the task. Its batches are structures of tensors whose first dimension is the rows.
        sizes: keyword arguments for `model`: the sizes that follow from the data.
        objective: the loss, predictions and metrics of the outputs.
        baseline: loss of the best predictor that ignores the inputs or has no memory, in the unit of the loss.
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
            docstring says what it reads. Empty: there is none.
        unit: what `batch_size_in_units` counts, in the plural. The speed of training is logged as
            `train/<unit>_a_second`.
        lr: the learning rate, in place of that of the optimizer's options. None: that of the options. `Tuner.lr_find`
            of Lightning sets it.
        train_loss: mean training loss over the last logging interval; None before the first.

    Raises:
        OptionError: the monitored metric or the mode is unknown, or `prefetch` is not allowed.
    """

    measures: tuple[Measure, ...] = OF_OBJECTIVES
    remarks: tuple[Remark, ...] = ()
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
        baseline: float,
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
        self.baseline = baseline
        self.model: Any = model(**sizes)
        self.metrics = self.objective.metrics(per_step=False) if metrics is None else metrics
        self.monitor = check_choice("monitor", monitor, [f"val/{name}" for name in self.metrics.names])
        self.mode = check_choice("mode", mode, ("min", "max"))
        self.train_loss: float | None = None
        self.lr: float | None = None
        self.optimization = Optimization(optimizer, scheduler)
        self._losses: list[Tensor] = []
        self._weight = 1.0  # of this process's rows of the batch; the mean over all processes is 1

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_current_fx_name":  # Lightning sets it 44 times a step; `nn.Module` would look for parameters first
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def data_metrics(self) -> dict[str, float]:
        """Return numbers that describe the data, such as the baseline; each evaluation logs them with its metrics."""
        return {"baseline": self.baseline}

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

    def targets(self, batch: Any) -> Tensor:
        """Return the targets: classes (B, …), or real values (B, …, Y); see `gyral.data.batching.Batch`."""
        return batch.targets

    def batch_size_in_units(self, batch: Any) -> int:
        """Return the size of a batch in `unit`; in this base class, the number of rows."""
        return len(self.targets(batch))

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Turn off dropout and gradients within the context."""
        training = self.training
        try:
            with torch.no_grad():
                self.eval()
                yield
        finally:
            self.train(training)

    def state_size(self) -> int:
        """Return the number of values that the model carries from step to step; 0 without sequences."""
        return 0

    def loss(self, outputs: Tensor, batch: Any) -> Tensor:
        """Return the mean loss over all targets: the cross-entropy in nats, or the mean squared error."""
        return self.objective.loss(outputs, self.targets(batch))

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Return the rows of a batch that this process computes. Every process loads whole batches."""
        if world_size() == 1:
            return batch
        own = local_rows(batch, rank(), world_size())
        # With this weight, the mean of the gradients over processes is the gradient of the mean over all targets.
        own_count, count = (self.objective.count(self.targets(rows)) for rows in (own, batch))
        self._weight = world_size() * (own_count / count).item() if count else 0.0
        return own

    def on_train_epoch_start(self) -> None:
        stream: Any = self.trainer.train_dataloader
        if isinstance(stream, Stream) and stream.position >= len(stream):  # the trainer would run empty epochs for ever
            reason = f"the training stream has ended after {self.global_step} of {self.trainer.max_steps} steps"
            raise UserError(f"{reason}; set Trainer(accumulate_grad_batches=…), which must not change during training")

    def training_step(self, batch: Any, index: int) -> Tensor:
        outputs = self(batch)
        # A process whose rows have no targets skips the loss: others may have some.
        loss = self.loss(outputs, batch) if self._weight else 0 * outputs.sum()
        if self._weight != 1:
            loss = loss * self._weight
        self._losses.append(loss.detach())
        updates = (index + 1) % self.trainer.accumulate_grad_batches == 0
        interval = self.trainer.log_every_n_steps  # 0: a trainer that logs nothing
        if updates and interval and (self.global_step + 1) % interval == 0:
            # Not self.log: Lightning would convert the tensor to a number at every step, for the progress bar.
            self.train_loss = torch.tensor(self._unlogged_losses()).mean().item()
            self._losses.clear()
            self.log_row({"train/loss": self.train_loss, "train/baseline": self.baseline}, self.global_step)
        return loss

    def _unlogged_losses(self) -> list[float]:
        """Return the losses of the steps since the last logged one, as means over all processes."""
        losses = torch.stack(self._losses).tolist() if self._losses else []
        return [sum(of_step) / len(of_step) for of_step in zip(*all_gather_object(losses), strict=True)]

    def log_row(self, metrics: dict[str, float], step: int) -> None:
        """Log metrics immediately.

        `self.log` would wait until the checkpoint of the same step is written. A run that is killed in between would
        lose the metrics.
        """
        for logger in self.trainer.loggers:
            logger.log_metrics(metrics=metrics, step=step)

    def validation_step(self, batch: Any, index: int) -> None:
        self._evaluate(batch)

    def test_step(self, batch: Any, index: int) -> None:
        self._evaluate(batch)

    def predict_step(self, batch: Any, index: int) -> Any:
        """Return the predictions for all rows of a batch, of which `trainer.predict` makes a list.

        In this base class, they are those of `predict`. A task that generates texts returns a list of texts.
        """
        return self.predict(batch)

    def _evaluate(self, batch: Any) -> None:
        if not len(self.targets(batch)):  # The batch has fewer rows than there are processes.
            return
        outputs = self(batch)
        if self._weight:
            self.metrics.update(outputs, batch, self.loss(outputs, batch))

    def on_validation_epoch_end(self) -> None:
        values = {f"val/{name}": value for name, value in self.metrics.compute().items()}
        for name, value in values.items():
            self.log(name, value, prog_bar=name == self.monitor)
        self.log_dict({f"val/{name}": value for name, value in self.data_metrics().items()})
        self.step_validation(values[self.monitor])

    def step_validation(self, monitored: Tensor) -> None:
        """Update what depends on validations; in this base class, the learning-rate schedule.

        Args:
            monitored: value of the monitored metric in the validation that has ended.
        """
        self.optimization.step_plateau(monitored)

    def on_test_epoch_end(self) -> None:
        values = {f"test/{name}": value for name, value in self.test_results().items()}
        # This fills trainer.callback_metrics and, without loggers, the results of trainer.test. Loggers get the metrics
        # from `log_row`, because Lightning's step differs in a run that was trained before.
        self.log_dict(values, logger=False if self.trainer.loggers else None)
        self.log_row(values, self.global_step)

    def test_results(self) -> dict[str, float]:
        """Return the metrics of a test, including those of categories of rows, and `data_metrics`."""
        categories = self.metrics.compute_categories()  # first: `compute` resets
        metrics = {**self.metrics.compute(), **categories}
        return {**{name: value.item() for name, value in metrics.items()}, **self.data_metrics()}

    def check_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check that the contents of a checkpoint other than weights belong to this task.

        Tasks whose `on_save_checkpoint` saves such contents override this method.

        Raises:
            UserError: the contents belong to another task.
        """

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

    def configure_optimizers(self) -> Any:
        return self.optimization.configure(self, self.lr)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """Take a step of the optimizer, then call `after_optimizer_step(steps, optimizer)` of modules that have it."""
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        for module in self.modules():
            if hasattr(module, "after_optimizer_step"):
                module.after_optimizer_step(self.global_step + 1, optimizer)  # Lightning counts the step afterwards

    def substitutes(self) -> dict[str, float]:
        """Return the metrics of `remarks`, which are not zero if the data are other data than the configuration names.

        Which data these are depends on the files that the data folder has. Checkpoints contain the metrics, so that no
        checkpoint is evaluated or trained on generated data in place of published data, or the other way round.
        """
        metrics = self.data_metrics() if self.remarks else {}
        return {remark.name: float(metrics[remark.name]) for remark in self.remarks if remark.name in metrics}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["substitutes"] = self.substitutes()
        checkpoint["losses_since_logged"] = self._unlogged_losses()
        self.optimization.save(checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        for loss in checkpoint["losses_since_logged"]:
            check_number("losses_since_logged", loss, math.inf)
        self._losses = [torch.tensor(loss, device=self.device) for loss in checkpoint["losses_since_logged"]]
        self.optimization.load(checkpoint)


class SequenceTask(Task[Data]):
    """A task on sequences of tokens or real vectors that predicts classes or real values, per step or per sequence.

    A task has either `vocabulary_size` or `input_size`, and either `output_size` or `objective`.

    Args:
        model: makes the model from the sizes of the task.
        data: the data module of the task. Its batches have the fields of `gyral.data.batching.Batch`.
        baseline: loss of the best predictor without memory, in the unit of the loss.
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
        baseline: float,
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
