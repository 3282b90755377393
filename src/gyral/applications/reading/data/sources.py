"""Files of questions, one example at a time."""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from gyral.core.errors import OptionError
from gyral.core.inputs import check_file, open_input
from gyral.data.raw_examples import RawExample, file_state, json_examples


class QuestionSource:
    """Files with one example per line or per file, and the function that makes questions of them.

    Args:
        files: the files, in order.
        parse: `parse(content, place, report)` returns a list of the questions of an example and adds notes to a report,
            or raises `UnusableError` if there are none. Worker processes call it, so it must be picklable.
        option, path: the option that selects the files and its value, for errors.
        by_line: whether an example is a line that is not empty, as `bytes`, rather than a file, as its path.
        part: which of the examples are used.
        prepare: returns the content for `parse` from the content and the place of an example; it runs in this process.
        key: values that identify the behavior of the two functions.

    Raises:
        OptionError: there are no files, or the first file cannot be read.
    """

    def __init__(
        self,
        files: Sequence[Path],
        parse: Callable[..., Any],
        *,
        option: str,
        path: str | Path,
        by_line: bool,
        part: slice = slice(None),
        prepare: Callable[[Any, str], Any] | None = None,
        key: Sequence[Any] = (),
    ) -> None:
        self.files = list(files)
        self.parse = parse
        self.option, self.path = option, str(path)
        self.by_line = by_line
        self.part = part
        self.prepare = prepare
        self.key = list(key)
        if not self.files:
            raise OptionError(option, path, "no such file or folder, or the folder is empty")
        check_file(option, path, self.files[0])

    @cached_property
    def _states(self) -> list[tuple[int, int]]:
        return [file_state(file) for file in self.files]

    @property
    def bytes(self) -> int:
        """Number of bytes of the files."""
        return sum(size for size, _ in self._states)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The function that makes questions of an example."""
        return (self.parse,)

    def fingerprint(self) -> list[Any]:
        """Return values that change when the questions change, and names, sizes and modification times of the files."""
        states = [[file.name, *state] for file, state in zip(self.files, self._states, strict=True)]
        digest = hashlib.sha256(json.dumps(states).encode()).hexdigest()
        return [self.by_line, self.part.start, self.part.stop, self.key, digest]

    def raw_examples(self) -> Iterator[RawExample]:
        """Yield the examples.

        Raises:
            OptionError: a file of lines cannot be read.
        """
        for example in itertools.islice(self._all_examples(), self.part.start, self.part.stop):
            yield (
                example
                if self.prepare is None
                else example._replace(content=self.prepare(example.content, example.place))
            )

    def _all_examples(self) -> Iterator[RawExample]:
        for index, file in enumerate(self.files):
            if self.by_line:
                with open_input(self.option, self.path, file) as lines:
                    for example in json_examples(lines):
                        yield example._replace(progress=(index + example.progress) / len(self.files))
            else:
                yield RawExample(file.name, str(file), (index + 1) / len(self.files))
