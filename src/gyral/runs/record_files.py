"""Finished and diverged runs as single files of text, which a repository can hold. Imports no torch.

A record file has the run's configuration, overrides, final metrics, thinned curves and provenance, as JSON; that of a
run that has diverged has the reason instead of metrics. It has
nothing that belongs to a machine: no name of a host, and no path outside the working directory. `gyral.runs.records`
reads record files wherever it reads run directories. Beside the record <name>.run.json of a language model may be the
results of its probes, which `gyral evaluate run=… parse=treebank save=<name>.treebank.json` writes.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any, ClassVar, TypeVar

from gyral.config.overrides import parse, written
from gyral.config.roles import IN_FOLDERS, PROCESS, SELECTION, key_of, role_of
from gyral.core.commands import program, typed
from gyral.core.errors import UserError
from gyral.core.files import to_json_lines, write_atomically
from gyral.core.measures import Measure, Remark, is_number
from gyral.runs.directory import RESULTS, check_results
from gyral.runs.measures import NO_MEASURES, to_plain
from gyral.runs.provenance import Origin, read_overrides, read_provenance
from gyral.runs.run_record import Curve, Log, Provenance, RunRecord, by_key, check_shape
from gyral.runs.saved_files import read_json

SUFFIX = ".run.json"
PACKAGES = ("torch", "pytorch-lightning", "numpy", "hydra-core")  # a record has their versions
FACTS = ("processor", "cores", "gpu", "python")  # of the provenance
SECTIONS = ("paths", "logger", "callbacks", "report")  # of the configuration, which records leave out
LONGEST_NAME = 150  # bytes
Offered = TypeVar("Offered", Measure, Remark)
DIGITS = 5  # significant digits of the points of a curve


@dataclass(frozen=True)
class _Content:
    """The content of a record file."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    config: dict[str, Any]
    overrides: list[str]
    results: dict[str, float | None]
    measures: tuple[Measure, ...] | None = None
    remarks: tuple[Remark, ...] = ()
    baseline: float | None = None
    curves: dict[str, Curve] = field(default_factory=dict)
    provenance: Origin = field(default_factory=Origin)
    transcribed: bool = False
    diverged: str | None = None

    def __post_init__(self) -> None:
        if self.baseline is not None and not is_number(self.baseline):
            raise ValueError("baseline: is not a number or too large")


@dataclass(frozen=True)
class _Probe:
    """The part of a probe's results that is read."""

    numbers: dict[str, float | None]


def write_record(record: RunRecord, folder: Path) -> Path:
    """Write the record of a run that is done or has diverged to its file below a folder, and return the file.

    The file has the name of the run's experiment, or of its task and model, and of its other overrides. An earlier
    record of the same name is replaced.

    Raises:
        UserError: the provenance of the run is missing or damaged.
        OSError: the file cannot be written.
    """
    given = [word for word in read_overrides(record.directory) if role_of(word) != PROCESS and key_of(word) != "sweep"]
    recorded = read_provenance(record.directory)
    data_dir = str((record.config.get("paths") or {}).get("data_dir") or "")
    config = {name: value for name, value in record.config.items() if name not in SECTIONS}
    overrides = [portable_override(word, data_dir) for word in given]
    # files of one name in two folders are different data
    data = recorded.get("data") or {}
    names = [
        word if word == short or key_of(word) not in data else f"{short}~{data[key_of(word)][:8]}"
        for word, short in zip(given, overrides, strict=True)
    ]
    versions = recorded.get("packages") or {}
    content = {
        "config": portable(config, data_dir),
        "overrides": overrides,
        "results": record.metrics,
        **({} if record.results else {"diverged": record.reason}),
        "baseline": record.baseline,
        "curves": {name: _rounded(curve) for name, curve in record.curves.items()},
        **to_plain(_logged(record.measures, record), _logged(record.remarks, record)),
        "provenance": {
            "git_commit": record.provenance.commit,
            **({"resumed_with": resumed} if (resumed := record.provenance.resumed_with) else {}),
            "changed": record.provenance.changed,
            "started": record.provenance.started,
            "command": typed([*program("train"), *overrides]),
            **{name: recorded.get(name) for name in FACTS},
            "packages": {name: versions[name] for name in PACKAGES if name in versions},
        },
    }
    path = folder / record_name(record, names)
    write_atomically(path, to_json_lines(content))
    return path


def read_record(path: Path) -> RunRecord:
    """Return the record in a file.

    Raises:
        UserError: the file is not a record.
    """
    content = read_json(path, _Content)
    results = check_results(str(path), content.results, () if content.transcribed or content.diverged else RESULTS)
    check_shape(content.config, path)
    if content.measures is None:
        raise UserError(f"{path}: {NO_MEASURES}")
    origin = content.provenance
    return RunRecord(
        place=str(path),
        config=content.config,
        overrides=by_key(content.overrides),
        results=None if content.diverged else results,
        reason=content.diverged,
        steps=int(results.get("steps", 0)),
        read_log=lambda: Log(content.curves, content.baseline),
        provenance=Provenance(
            commit=origin.git_commit or "",
            resumed_with=tuple(origin.resumed_with or ()),
            changed=bool(origin.changed),
            command=origin.command if isinstance(origin.command, str) else "",
            started=origin.started or "",
        ),
        transcribed=content.transcribed,
        measures=content.measures,
        remarks=content.remarks,
    )


def read_probe(record: RunRecord, probe: str) -> dict[str, float]:
    """Return the numbers of a probe in the file beside a record, or an empty dictionary if it does not exist.

    Args:
        record: a record from a file.
        probe: "treebank", "syneval" or "blimp".

    Raises:
        UserError: the file is damaged.
    """
    path = Path(record.place.removesuffix(SUFFIX) + f".{probe}.json")
    if not record.place.endswith(SUFFIX) or not os.path.lexists(path):
        return {}
    numbers = read_json(path, _Probe).numbers.items()
    return check_results(str(path), {name: value for name, value in numbers if value is not None}, ())


def record_name(record: RunRecord, overrides: Sequence[str]) -> PurePath:
    """Return the path of a run's record file below the folder of records."""
    model = record.overrides.get("model", record.cell).removeprefix("model=")
    folder = record.experiment or PurePath(record.task.replace(" ", "_"), model)
    left_out = (PROCESS, SELECTION)  # what chooses the run is the folder and the seed
    words = sorted(word for word in overrides if role_of(word) not in left_out and key_of(word) not in IN_FOLDERS)
    name = ",".join([*words, f"seed={record.seed}"]).replace(os.sep, "-")
    encoded = name.encode("utf-8", "surrogateescape")
    if len(encoded) > LONGEST_NAME:
        start = encoded[: LONGEST_NAME // 2].decode("utf-8", "ignore")
        name = f"{start}~{hashlib.sha256(encoded).hexdigest()[:12]},seed={record.seed}"
    return PurePath(folder, name + SUFFIX)


def portable(value: Any, data_dir: str) -> Any:
    """Return a value of a configuration without paths of this machine.

    A path in the data directory begins with "data". A path in the working directory is relative to it. Any other
    absolute path is reduced to its last part.
    """
    if isinstance(value, dict):
        return {name: portable(inner, data_dir) for name, inner in value.items()}
    if isinstance(value, list):
        return [portable(inner, data_dir) for inner in value]
    if not isinstance(value, str) or not value.startswith(os.sep):
        return value
    for base, short in ((data_dir, "data"), (str(Path.cwd()), "")):
        if base and PurePath(value).is_relative_to(base):
            return str(PurePath(short, PurePath(value).relative_to(base)))
    return PurePath(value).name


def portable_override(word: str, data_dir: str) -> str:
    """Return an override without paths of this machine, see `portable`."""
    key, equals, text = word.partition("=")
    parsed = parse(word)
    value = text if parsed is None else parsed.value()
    short = portable(value, data_dir)
    return word if short == value else key + equals + written(short)


def _logged(offered: Sequence[Offered], record: RunRecord) -> list[Offered]:
    """Return the measures or remarks that the results or the curves of a run have."""
    names = {metric.partition("/")[2] for metric in (*record.metrics, *record.curves)}
    return [one for one in offered if one.name in names]


def _rounded(curve: Curve) -> dict[str, Any]:
    return {**asdict(curve), "values": [float(f"{value:.{DIGITS}g}") for value in curve.values]}
