"""Damaged files among good ones: every form of a report shows the good runs and names the damaged files.

The fields, the files and the ways of damage are those that the code has: there is no list of them to keep here.
"""

import copy
import functools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from gyral.reports.render import SUFFIXES
from gyral.runs import records
from gyral.runs.directory import FILES
from gyral.runs.record_files import SUFFIX, write_record
from tests.faults import forks
from tests.faults.damages import CONTENTS, OTHERS, damage
from tests.helpers.attacks import Attack
from tests.helpers.docs import load_script
from tests.helpers.written import TABLE1, write_run

GOOD = 8
DEEP = 3000  # levels

# Values that a field may have instead of its own.
WRONG: tuple[Any, ...] = (
    *(None, True, 3, -1, 2.5, 1e308, -1e308, 10**400, float("nan"), float("inf")),
    *("", "x", "x" * 10_000, "\x1b[2J", "${oc.env:HOME}", "choice(" * 300, "a=b,c"),
    *([], [1], [None], [["x"]], {}, {"a": 1}, {"": None}, {"_target_": "os.system"}),
)


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


def write_deep(opening: str, closing: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(opening * DEEP + "1" + closing * DEEP)


# Besides the damages of contents: what is at the path of the file instead.
INSTEAD: dict[str, Callable[[Path], object]] = {
    **OTHERS,
    "huge": make_huge,
    "deep lists": write_deep("[", "]"),
    "deep objects": write_deep('{"a": ', "}"),
    "deep lists of YAML": lambda path: path.write_text("".join(f"{' ' * level}-\n" for level in range(500))),
    "aliases": lambda path: path.write_text("a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]\n"),
    "tags": lambda path: path.write_text("!!python/object/apply:os.system ['true']\n"),
    "wrong tags": lambda path: path.write_text("- !!bool x\n- !!int ''\n- !!timestamp x\n- !!binary x\n"),
}


@pytest.fixture(scope="session")
def good_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the directories of good runs."""
    folder = tmp_path_factory.mktemp("good") / "runs"
    for seed in range(1, GOOD + 1):
        write_run(folder, "none", "model=gru" if seed % 2 else "model=lstm", seed=seed, accuracy=0.2 + seed / 100)
    return folder


@pytest.fixture(scope="session")
def good_records(good_runs: Path) -> Path:
    """A folder with the record files of these runs."""
    folder = good_runs.parent / "records"
    for run in records.read(good_runs)[0]:
        write_record(run, folder)
    return folder


def report(folder: Path, limit: float = 10.0) -> dict[str, str]:
    """Return the report of a folder in all forms; a hang, a traceback or an error is a failure."""
    saved = [f"out{suffix}" for suffix in SUFFIXES]
    ended = forks.run(
        f"sweep={folder.name}", "runs=true", "all=true", f"save=[{','.join(saved)}]", entry="report",
        directory=folder.parent, limit=limit,
    )  # fmt: skip
    assert ended.status == 0, (ended.status, ended.err[-2000:])
    assert "Traceback" not in ended.out + ended.err
    return {"terminal": ended.out, **{name: (folder.parent / name).read_text() for name in saved}}


def check(folder: Path, good: list[Path], damaged: list[Path], attack: Attack) -> None:
    """Check that all forms of the report show the good runs, and name or show each damaged one."""
    found, notes = records.read(folder)
    shown = {record.place for record in found}
    for form, text in report(folder).items():
        flat = text.replace("\\", "").replace("{}", "").replace("\n", "")
        missing = [path for path in (*good, *damaged) if path.name not in flat]
        assert not missing, (form, missing, notes)
    assert {str(path) for path in good} <= shown
    for path in damaged:
        is_named = any(str(path) in note for note in notes)
        assert is_named or str(path) in shown, path
        attack.record("named" if is_named else "usable")


@pytest.mark.attacks(sampled=1, whole=200)
def test_a_report_shows_the_good_records_and_names_the_damaged_ones(
    attack: Attack, good_records: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(good_records, tmp_path / "records")
    good = sorted(folder.rglob(f"*{SUFFIX}"))
    damaged = []
    for number in range(attack.random.choice((1, 1, 3))):
        path = folder / f"damaged{number}{SUFFIX}"
        shutil.copy(attack.random.choice(good), path)
        if damage(path, attack.random) != "missing":
            damaged.append(path)
    check(folder, good, damaged, attack)


def fields(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of all values in nested containers; of a list, the first and the last."""
    yield place
    if isinstance(value, dict):
        for key in value:
            yield from fields(value[key], (*place, key))
    elif isinstance(value, list):
        for index in sorted({0, len(value) - 1}) if value else ():
            yield from fields(value[index], (*place, index))


def changed(content: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Return nested containers with another value at a place."""
    if not place:
        return value
    copied = copy.deepcopy(content)
    node = copied
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    return copied


@pytest.mark.attacks(sampled=1, whole=len(WRONG))
def test_every_field_of_a_record_may_have_a_wrong_type(attack: Attack, good_records: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good_records, tmp_path / "records")
    good = sorted(folder.rglob(f"*{SUFFIX}"))
    content = json.loads(good[0].read_text())
    content["config"] |= {
        "model": {"_target_": "a.B", "cell": {"_target_": "a.CCell", "lambd": 1}},
        "paper": {"row": "R"},
    }
    content["provenance"]["started"] = "at another time"  # else they were copies of the good one
    damaged = []
    for number, place in enumerate(fields(content)):
        path = folder / f"field{number}{SUFFIX}"
        path.write_text(json.dumps(changed(content, place, WRONG[attack.number])))
        damaged.append(path)
    check(folder, good, damaged, attack)


@pytest.mark.attacks(sampled=1, whole=len(CONTENTS) + len(INSTEAD))
def test_every_file_of_a_run_may_be_damaged_in_every_way(attack: Attack, good_runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good_runs, tmp_path / "runs")
    good = sorted(path.parent for path in folder.rglob("config.yaml"))
    way = [*CONTENTS, *INSTEAD][attack.number]
    damaged = []
    for name in FILES:
        run = shutil.copytree(good[0], folder / f"damaged-{name.removeprefix('.')}")
        started = json.loads((run / "provenance.json").read_text()) | {"started": "at another time"}
        (run / "provenance.json").write_text(json.dumps(started))  # else it were a copy of the good one
        content = (run / name).read_bytes() if (run / name).is_file() else b"Traceback\nError: text\n"
        (run / name).unlink(missing_ok=True)
        if way in CONTENTS:
            (run / name).write_bytes(CONTENTS[way](content, Random(attack.seed)))
        else:
            INSTEAD[way](run / name)
        damaged.append(run)
    check(folder, good, damaged, attack)


@pytest.mark.attacks(sampled=1, whole=len(CONTENTS) + len(INSTEAD))
def test_the_plan_of_a_sweep_may_be_damaged_in_every_way(attack: Attack, good_runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good_runs, tmp_path / "runs")
    good = sorted(path.parent for path in folder.rglob("config.yaml"))
    way, plan = [*CONTENTS, *INSTEAD][attack.number], folder / "multirun.yaml"
    if way in CONTENTS:
        plan.write_bytes(CONTENTS[way](plan_of("model=gru,lstm", "seed=1,2").encode(), attack.random))
    else:
        INSTEAD[way](plan)
    check(folder, good, [], attack)


def plan_of(*overrides: str) -> str:
    """Return the text of multirun.yaml for these overrides."""
    sweeper = {"_target_": "gyral.sweeps.grid.Grid", "params": None}
    return yaml.safe_dump({"hydra": {"overrides": {"task": [*overrides], "hydra": []}, "sweeper": sweeper}})


@pytest.mark.parametrize(
    "override",
    [
        "a=" + "[" * 5000,
        "a=range(1,1000000000)",
        *(
            pytest.param(override, marks=pytest.mark.slow)
            for override in (
                "a=" + ",".join("{a:1}" * 9000),
                "\x00=\x00",
                "a=" + "choice(" * 5000,
                "a=choice(" + "(" * 5000 + ")" * 5001,
                "a=range(1,9,0)",
                "a='" + "\\'" * 9000,
                "=",
                "",
            )
        ),
    ],
)
def test_overrides_of_others_are_text(override: str, good_runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good_runs, tmp_path / "runs")
    good = sorted(path.parent for path in folder.rglob("config.yaml"))
    (folder / "multirun.yaml").write_text(plan_of(override, *(f"x{number}=1,2,3" for number in range(40))))
    for run in good[:3]:
        provenance = json.loads((run / "provenance.json").read_text())
        (run / "provenance.json").write_text(json.dumps({**provenance, "command": ["python", override]}))
    check(folder, good, [], Attack("", 0, 0))


CLAIM = {
    "claim": "A sentence.",
    "paper": "a paper",
    "rows": f"{TABLE1}/gru",
    "bound": 20,
    "options": [],
    "measure": "accuracy",
    "expected": "higher",
    "command": "gyral train",
}
PAGE = """<!-- claims good -->
<!-- end -->
<!-- claims damaged -->
<!-- end -->
<!-- gyral report sweep=results/records/runs -->
<!-- end -->
<!-- probe treebank sweep=rum_paper_table1 -->
<!-- end -->
"""
TABLES = "def treebank(found):\n    return [['row', 'f1'], *([name, own.mean('f1')] for name, own in found.items())]\n"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what docs/results.py reads, with records, claims, and the results of probes."""
    root = tmp_path_factory.mktemp("site")
    for seed in range(1, GOOD + 1):
        write_run(root / "runs", f"{TABLE1}/gru", seed=seed, accuracy=0.2 + seed / 100)
    for run in records.read(root / "runs")[0]:
        run.config["model"] = {"layer_sizes": [3]}
        path = write_record(run, root / "results" / "records" / "runs")
        path.with_name(path.name.replace(SUFFIX, ".treebank.json")).write_text('{"numbers": {"f1": 41.5}}')
    (root / "results" / "claims").mkdir()
    for name in ("good", "damaged"):
        (root / "results" / "claims" / f"{name}.yaml").write_text(yaml.safe_dump([CLAIM, copy.deepcopy(CLAIM)]))
    (root / "docs" / "results").mkdir(parents=True)
    (root / "docs" / "results" / "tables.py").write_text(TABLES)
    (root / "docs" / "results" / "page.md").write_text(PAGE)
    return root


@functools.cache
def results_script() -> Any:
    """Return docs/results.py; here, so that its imports are not made in each fork."""
    return load_script("results")


def fill_pages(root: Path) -> forks.Ended:
    """Run docs/results.py in another directory than the project's."""
    module = results_script()

    def call() -> None:
        module.ROOT = root
        raise SystemExit(module.main())

    return forks.fork(call, root)


def check_page(root: Path, damaged: Path, attack: Attack) -> None:
    ended = fill_pages(root)
    assert "Traceback" not in ended.out + ended.err, ended.err
    page = (root / "docs" / "results" / "page.md").read_text().replace("\\", "")
    assert page.count("2 claims: ") >= 1
    assert page.count("A sentence.") >= 2
    assert "41.5" in page
    if ended.status:
        assert str(damaged.relative_to(root)) in page
        assert str(damaged.relative_to(root)) in ended.err
    attack.record("named" if ended.status else "usable")


@pytest.mark.attacks(sampled=1, whole=200)
def test_pages_of_results_show_the_others(attack: Attack, site: Path, tmp_path: Path) -> None:
    root = shutil.copytree(site, tmp_path / "site")
    seed = root / "results" / "records" / "runs" / TABLE1 / "gru" / f"seed=7{SUFFIX}"
    files = (root / "results/claims/damaged.yaml", seed, seed.with_name(seed.name.replace(SUFFIX, ".treebank.json")))
    path = attack.random.choice(files)
    content, way = path.read_bytes(), attack.random.choice([*CONTENTS, *INSTEAD])
    path.unlink()
    if way in CONTENTS:
        path.write_bytes(CONTENTS[way](content, attack.random))
    else:
        INSTEAD[way](path)
    check_page(root, path, attack)


@pytest.mark.attacks(sampled=1, whole=len(WRONG))
def test_every_field_of_a_claim_may_have_a_wrong_type(attack: Attack, site: Path, tmp_path: Path) -> None:
    root = shutil.copytree(site, tmp_path / "site")
    for place in fields(CLAIM):
        path = root / "results" / "claims" / "damaged.yaml"
        path.write_text(yaml.safe_dump([changed(CLAIM, place, WRONG[attack.number]), CLAIM]))
        (root / "docs" / "results" / "page.md").write_text(PAGE)
        check_page(root, path, attack)
