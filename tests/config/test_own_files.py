"""Files of a user's folder conf/ with options that nothing would read, or that are damaged: a line names the file."""

import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import gyral
from gyral.config import own_files
from gyral.config.groups import CONFIG_PATH, groups
from gyral.config.roles import CHOSEN, OTHERS, SECTIONS
from gyral.config.words import read_words
from gyral.core.errors import UserError

GLOBAL = "# @package _global_\n"
NO_PACKAGE = "must begin with the line `# @package _global_`; without it, its options are in a section {}, which"
LOCATED = "without the line `# @package _global_`, it is in the section {}"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own_files._warn.cache_clear()


def write(path: str, content: str | bytes) -> None:
    file = Path("conf", f"{path}.yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


def refused(path: str, content: str | bytes) -> str:
    """Return the line for a file without the path of the file, which is the beginning of the line."""
    write(path, content)
    assert own_files.find(path) is not None
    with pytest.raises(UserError) as raised:
        own_files.load(path)
    line = str(raised.value)
    assert "\n" not in line
    assert line.startswith(f"conf/{path}.yaml:"), line
    return line.removeprefix(f"conf/{path}.yaml:").strip()


def test_the_known_sections_equal_those_of_the_primary_file() -> None:
    primary = OmegaConf.load(f"{CONFIG_PATH}/train.yaml")
    assert {"defaults", *OTHERS} == set(primary)
    chosen = [str(key) for entry in primary.defaults if entry != "_self_" for key in entry]
    assert set(CHOSEN) == {key for key in chosen if " " not in key}
    assert set(CHOSEN) < {*groups()}
    assert set(SECTIONS) < {*CHOSEN}


@pytest.mark.parametrize("group", sorted({*CHOSEN} - {*SECTIONS}))
def test_a_file_with_options_of_several_sections_needs_its_package(group: str) -> None:
    assert refused(f"{group}/mine", "optimizer:\n  lr: 0.1\n").startswith(NO_PACKAGE.format(group))
    for begin in ("# My options\n# @package _global_\n", f"# @package {group}\n", "# @package _group_\n"):
        assert refused(f"{group}/mine", f"{begin}optimizer:\n  lr: 0.1\n").startswith(NO_PACKAGE.format(group))
    assert refused(f"{group}/late", f"optimizer:\n  lr: 0.1\n{GLOBAL}").startswith(NO_PACKAGE.format(group))
    write(f"{group}/right", f"{GLOBAL}optimizer:\n  lr: 0.1\n")
    assert own_files.load(f"{group}/right")[1] == {"package": "_global_"}


@pytest.mark.parametrize("group", SECTIONS)
def test_the_options_of_a_section_are_in_its_file_without_a_package(group: str) -> None:
    line = refused(f"{group}/mine", f"{GLOBAL}_target_: own.Own\nrate: 3\n")
    known = "must not have the line `# @package _global_`" if group in ("model", "task") else LOCATED.format(group)
    assert known in line
    assert "remove the line" in refused(f"{group}/nested", f"{group}:\n  _target_: own.Own\n")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("optmizer:\n  lr: 3\n", "optmizer: no such section or option; did you mean optimizer? must be one of "),
        ("sed: 3\n", "sed: no such section or option; did you mean seed? must be one of "),
        ("lr: 3\n", "lr: no such section or option; must be one of "),
        ("paths:\n  data_folder: x\n", "paths.data_folder: no such option; must be data_dir"),
        ("default:\n  - override /task: recall\n", "default: did you mean defaults?"),
        ("Defaults: [_self_]\n", "Defaults: did you mean defaults?"),
        ("defualts: [_self_]\n", "defualts: did you mean defaults?"),
    ],
)
def test_a_misspelt_section_is_refused(content: str, said: str) -> None:
    assert refused("experiment/mine", GLOBAL + content).startswith(said)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ("[task: recall]", "task: recall: write `override /task: recall`"),
        ("[/task: recall]", "/task: recall: write `override /task: recall`, because every experiment has a task"),
        ("[override task: recall]", "override task: recall: write `override /task: recall`"),
        ("[scheduler: null]", "scheduler: null: write `override /scheduler: null`"),
        ("[cell@model.cell: gru]", "cell@model.cell: gru: write `/cell@model.cell: gru`"),
        ("[override cell@model.cell: gru]", "override cell@model.cell: gru: write `override /cell@model.cell: gru`"),
        ("[/cell: gru]", "/cell: gru: write `/cell@model.cell: gru`"),
        ("[override /tsk: recall]", "override /tsk: recall: no such group; did you mean task? must be one of "),
        ("[override /task: recal]", "override /task: recal: there is no task of this name; `gyral train --help task`"),
        ("[_bse]", "_bse: there is no file experiment/_bse.yaml"),
        ("[/task/recal]", "/task/recal: there is no file task/recal.yaml"),
        ("recall", "must be a list, such as"),
        ("{override /task: recall}", "must be a list, such as"),
    ],
)
def test_an_entry_of_defaults_that_hydra_reads_otherwise_is_refused(entries: str, said: str) -> None:
    assert refused("experiment/mine", f"{GLOBAL}defaults: {entries}\n").startswith(f"defaults: {said}")


def test_right_files_compose() -> None:
    write("experiment/_common", f"{GLOBAL}defaults:\n  - override /task: recall\n  - _self_\nseed: 5\n")
    entries = "[_common, override /model: gru, override /optimizer: mine, override /callbacks: [norms], _self_]"
    write("experiment/mine", f"{GLOBAL}defaults: {entries}\npaths:\n  data_dir: corpora\n")
    write("optimizer/mine", "# @package optimizer\n_target_: torch.optim.Adam\nlr: 0.5\n")
    write("scheduler/mine", f"{GLOBAL}scheduler:\n  _target_: own.Own\n")
    write("model/larger", "defaults: [_base, /cell: gru, _self_]\ncell:\n  hidden_size: 9\n")
    write("cell/small", "defaults: [gru, _self_]\nhidden_size: 4\n")
    config = gyral.compose(["experiment=mine", "scheduler=mine", "model=small"])
    assert (config.seed, config.optimizer.lr, config.paths.data_dir) == (5, 0.5, "corpora")
    assert config.task._target_.endswith(".RecallTask")
    assert config.scheduler._target_ == "own.Own"
    assert config.model.cell.hidden_size == 4
    assert gyral.compose(["model=larger"]).model.cell.hidden_size == 9


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("optimizer:\n\tlr: 3\n", "2: found character '\\t' that cannot start any token; indent with spaces"),
        ("optimizer:\n  lr: 3\n  lr: 4\n", "3: found duplicate key lr (while constructing a mapping from line 2)"),
        ("optimizer: lr: 3\n", "1: mapping values are not allowed here"),
        ("seed: [1,\nthreads: 2\n", "3: expected ',' or ']'"),
        ("seed: !!python/name:os.system\n", "1: could not determine a constructor for the tag"),
        ("seed: 'a\n", "2: found unexpected end of stream (while scanning a quoted scalar from line 1)"),
        ("seed: 1\n---\nseed: 2\n", "2: but found another document (expected a single document in the stream"),
        ("- seed\n- threads\n", "must hold options, such as `seed: 2`, and no list"),
        ("optimizer: {lr: '${seed'}\n", "optimizer.lr: no viable alternative at input '${seed'"),
        (b"seed: \xff\n", "cannot be read ('utf-8' codec can't decode byte 0xff"),
        (b"seed: \x01\n", "is not YAML: unacceptable character"),
        ("# @package\nseed: 2\n", "1: Expected header format: KEY VALUE"),
    ],
)
@pytest.mark.parametrize("group", ["experiment", "optimizer", "task"])
def test_a_damaged_file_is_refused_with_the_line(group: str, content: str | bytes, said: str) -> None:
    assert refused(f"{group}/mine", content).startswith(said)


@pytest.mark.parametrize(
    ("own", "asked", "used"),
    [
        ("optimizer/adam", "optimizer/adam", "optimizer/adam"),
        ("task/copy", "task/copy", "task/copy"),
        ("cell/gru", "cell/gru", "cell/gru"),
        ("train", "train", "train"),
        ("experiment/rum_paper/fig4/lstm", "experiment/rum_paper/fig4/lstm", "table/rum_paper_fig4"),
        ("table/rum_paper_fig4", "sweep/rum_paper_fig4", "table/rum_paper_fig4"),
        ("cell/transformer", "model/transformer", "model/transformer"),
    ],
)
def test_a_file_with_the_name_of_gyrals_own_is_not_read_and_a_line_says_so(
    own: str, asked: str, used: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(own, f"{GLOBAL}seed: 3\n")
    assert own_files.find(asked) is None
    instead = "write its options into conf/experiment/<name>.yaml" if own == "train" else "rename it"
    lines = [line for line in caplog.messages if "this table is left out" not in line]
    assert lines == [f"conf/{own}.yaml: is not read, because {CONFIG_PATH}/{used}.yaml is; {instead}"]
    own_files.find(asked)
    assert len([line for line in caplog.messages if "is not read" in line]) == 1


def test_an_equal_copy_of_gyrals_own_file_is_no_reason_for_a_line(caplog: pytest.LogCaptureFixture) -> None:
    write("optimizer/adam", Path(CONFIG_PATH, "optimizer", "adam.yaml").read_bytes())
    assert own_files.find("optimizer/adam") is None
    assert not caplog.messages


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["+experiment.lr=3"], "experiment.lr=3: no such option; did you mean optimizer.lr?"),
        (["+launcher.n_jobs=3"], "launcher.n_jobs=3: no such option"),
        (["+debug.seed=3"], "debug.seed=3: no such option; did you mean seed?"),
        (["+sweep.seed=3"], "sweep.seed=3: no such option; did you mean seed?"),
        (["+paths.cache=x"], "paths.cache=x: no such option"),
        (["cell=gru"], "cell=gru: is a section of a model; write model=gru, or cell@model.cell=gru"),
        (["-m", "hydra.run.dir=x"], "hydra.run.dir=x: is the directory of a single run; a sweep has hydra.sweep.dir="),
        (["hydra.sweep.dir=x"], "hydra.sweep.dir=x: is an option of sweeps: add -m; a single run has hydra.run.dir="),
        (["hydra.sweep.subdir=x"], "hydra.sweep.subdir=x: is an option of sweeps: add -m; "),
        (["hydra.sweeper.together=[a]"], "hydra.sweeper.together=[a]: is an option of sweeps: add -m; "),
        (["trust=my_cells"], "trust=my_cells: needs resume=<run directory>, whose configuration may name these"),
    ],
)
def test_an_option_that_nothing_would_read_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(UserError, match=rf"^{re.escape(said)}"):
        read_words(words, Path(CONFIG_PATH, "train"))


def test_a_folder_that_is_no_group_is_refused() -> None:
    write("optimizers/mine", "lr: 3\n")
    for word in ("optimizers=mine", "+optimizers=mine"):
        with pytest.raises(UserError, match=r"^optimizers=mine: conf/optimizers is none .* did you mean optimizer\? "):
            read_words([word], Path(CONFIG_PATH, "train"))


def test_another_suffix_than_yaml_is_named() -> None:
    Path("conf/optimizer").mkdir(parents=True)
    Path("conf/optimizer/mine.yml").write_text("lr: 3\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"^conf/optimizer/mine\.yml: must have the suffix \.yaml$"):
        gyral.compose(["optimizer=mine"])
