"""Files of questions, read record by record."""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from gyral.core.errors import OptionError
from gyral.core.inputs import check_file, reading
from gyral.data.records import Record, file_state, line_records


class QuestionSource:
    """Files with one record on each line, or with one record each, and the function that makes questions of them.

    Args:
        files: the files, in order.
        parse: returns the questions of a record, a list, and adds notes to a report; it raises `UnusableError` if there
            are none. It is called as `parse(content, place, report)` in worker processes and must be picklable.
        option, path: the option that selects the files and its value, for errors.
        by_line: whether each line that is not empty is a record, `bytes`, rather than each file, its path.
        part: which of the records are used.
        prepare: returns what `parse` gets, for the content and the place of a record; it runs in this process.
        key: values that identify what the two functions do.

    Raises:
        OptionError: there is no file, or the first one cannot be read.
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
        """The function that makes questions of a record."""
        return (self.parse,)

    def fingerprint(self) -> list[Any]:
        """Return values that change when the questions change, and names, sizes and modification times of the files."""
        states = [[file.name, *state] for file, state in zip(self.files, self._states, strict=True)]
        digest = hashlib.sha256(json.dumps(states).encode()).hexdigest()
        return [self.by_line, self.part.start, self.part.stop, self.key, digest]

    def records(self) -> Iterator[Record]:
        """Yield the records.

        Raises:
            OptionError: a file with a record on each line cannot be read.
        """
        for record in itertools.islice(self._all_records(), self.part.start, self.part.stop):
            yield (
                record if self.prepare is None else record._replace(content=self.prepare(record.content, record.place))
            )

    def _all_records(self) -> Iterator[Record]:
        for index, file in enumerate(self.files):
            if self.by_line:
                with reading(self.option, self.path, file) as lines:
                    for record in line_records(lines):
                        yield record._replace(progress=(index + record.progress) / len(self.files))
            else:
                yield Record(file.name, str(file), (index + 1) / len(self.files))
