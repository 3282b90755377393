"""Tasks whose options are the options of their data."""

from abc import abstractmethod
from inspect import signature
from typing import Any

from gyral.core.options import declares_options
from gyral.tasks.base import Data, SequenceTask, Task


class DataOptionsTask(Task[Data]):
    """A task that makes its data from its options. A subclass needs no constructor.

    Args:
        model: makes the model from the sizes of the task.
        **options: see `gyral.tasks.base.Task`: optimizer, scheduler, monitor, mode, overfit, prefetch. The others are
            the options of `data_class`.

    Attributes:
        data_class: the class of the data. Its annotated attributes are the options, see `gyral.core.options.Options`;
            or its constructor names them all with their defaults, keyword-only.

    Raises:
        UserError: an option is out of bounds, or the data cannot be made.
    """

    data_class: type[Data]

    def __init__(self, model: Any, **options: Any) -> None:
        declares = declares_options(self.data_class)  # else it has a constructor of its own
        known = self.data_class.__options__ if declares else signature(self.data_class).parameters
        own = {name: options.pop(name) for name in known if name in options}
        data = self.data_class(**own)
        super().__init__(model, data, **{**self.arguments(data), **options})

    @classmethod
    @abstractmethod
    def arguments(cls, data: Data) -> dict[str, Any]:
        """Return the arguments of the base class that follow from the data, such as the sizes and the baseline."""


class DataTask(DataOptionsTask[Data], SequenceTask[Data]):
    """A task on sequences that makes its data from its options; see `DataOptionsTask`."""
