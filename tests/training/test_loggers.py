"""metrics.csv holds every row once, whatever happened to the run; Weights & Biases never asks."""

import csv
import os
from pathlib import Path

import pytest
import wandb

from gyral.runs.wandb_key import has_wandb_key
from gyral.training.loggers import MetricsFile
from tests.helpers.running import SMALL_COPY, invoke
from tests.helpers.wandb_log import of_type, read_records


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.csv"


def test_rows_are_on_disk_as_soon_as_they_are_logged(path: Path) -> None:
    file = MetricsFile(path)
    assert path.read_text(encoding="utf-8").strip() == "step"
    file.log_metrics({"loss": 0.5, "epoch": 0}, step=1)
    assert rows(path) == [{"step": "1", "loss": "0.5"}]
    file.log_metrics({"loss": 0.25}, step=2)
    assert rows(path) == [{"step": "1", "loss": "0.5"}, {"step": "2", "loss": "0.25"}]


def test_a_row_with_known_columns_is_appended_without_writing_the_file_again(path: Path) -> None:
    file = MetricsFile(path)
    file.log_metrics({"loss": 0.5}, step=1)
    before = path.stat().st_ino
    file.log_metrics({"loss": 0.4}, step=2)
    assert path.stat().st_ino == before


def test_a_new_column_is_empty_in_older_rows(path: Path) -> None:
    file = MetricsFile(path)
    file.log_metrics({"loss": 0.5}, step=1)
    file.log_metrics({"accuracy": 1.0}, step=1)
    file.log_metrics({"loss": 0.4}, step=2)
    assert rows(path) == [
        {"step": "1", "loss": "0.5", "accuracy": ""},
        {"step": "1", "loss": "", "accuracy": "1.0"},
        {"step": "2", "loss": "0.4", "accuracy": ""},
    ]
    assert not list(path.parent.glob("*.tmp"))


def test_numbers_are_written_with_all_their_digits(path: Path) -> None:
    value = 0.1 + 0.2
    MetricsFile(path).log_metrics({"loss": value, "lost": float("nan")}, step=1)
    (row,) = rows(path)
    assert float(row["loss"]) == value
    assert row["lost"] == "nan"


def logged(path: Path) -> None:
    file = MetricsFile(path)
    for step in (1, 3, 5, 7):
        file.log_metrics({"loss": step / 10}, step=step)
        file.log_metrics({"accuracy": step / 100}, step=step)


def test_resuming_drops_rows_after_the_checkpoint(path: Path) -> None:
    logged(path)
    whole = path.read_text(encoding="utf-8")
    # after four optimizer steps, of indices 0 to 3
    file = MetricsFile(path, resumed_at=4)
    assert [row["step"] for row in rows(path)] == ["1", "1", "3", "3"]
    for step in (5, 7):
        file.log_metrics({"loss": step / 10}, step=step)
        file.log_metrics({"accuracy": step / 100}, step=step)
    assert path.read_text(encoding="utf-8") == whole


def test_resuming_survives_a_line_cut_off_anywhere(path: Path) -> None:
    logged(path)
    whole = path.read_bytes()
    last_line = whole.rstrip().rfind(b"\n") + 1
    for end in range(last_line, len(whole)):
        path.write_bytes(whole[:end])
        MetricsFile(path, resumed_at=6)
        assert [row["step"] for row in rows(path)] == ["1", "1", "3", "3", "5", "5"]


def test_a_fresh_start_forgets_an_older_file(path: Path) -> None:
    logged(path)
    MetricsFile(path)
    assert rows(path) == []


def test_resuming_without_a_file_starts_one(path: Path) -> None:
    MetricsFile(path, resumed_at=4).log_metrics({"loss": 1.0}, step=5)
    assert [row["step"] for row in rows(path)] == ["5"]


SHORT = (
    *(option for option in SMALL_COPY if option != "logger=none"),
    "trainer.max_steps=2",
    "trainer.val_check_interval=2",
)
REFERENCE = ("model=gru", "model.backend=reference")  # compiled kernels are in the home


@pytest.fixture
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home without settings of Weights & Biases."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("WANDB_") or name == "NETRC"]:
        monkeypatch.delenv(name)
    return tmp_path


def has_key(**variables: str) -> bool:
    """Return whether a key is found by a process with these variables."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        wandb.teardown()
        return has_wandb_key(wandb.setup(wandb.Settings(silent=True)).settings)


def test_a_key_is_found_wherever_wandb_finds_it(own_home: Path) -> None:
    assert not has_key()
    assert has_key(WANDB_API_KEY="0" * 40)
    assert has_key(WANDB_IDENTITY_TOKEN_FILE=str(own_home / "token"))

    netrc = own_home / ".netrc"
    netrc.write_text("machine elsewhere.org\n  login user\n  password word\n")
    netrc.chmod(0o600)
    assert not has_key()
    netrc.write_text(f"machine localhost:8080\n  login user\n  password {'0' * 40}\n")
    assert not has_key()
    assert has_key(WANDB_BASE_URL="http://localhost:8080")
    netrc.rename(own_home / "keys")
    assert not has_key(WANDB_BASE_URL="http://localhost:8080")
    assert has_key(WANDB_BASE_URL="http://localhost:8080", NETRC=str(own_home / "keys"))
    netrc.write_text("this is not a netrc file")
    assert not has_key()


@pytest.mark.usefixtures("own_home")
def test_the_settings_of_the_user_come_before_the_defaults_and_after_the_options(tmp_path: Path) -> None:
    settings = {
        "WANDB_MODE": "offline",
        "WANDB_PROJECT": "mine",
        "WANDB_NAME": "first try",
        "WANDB_NOTES": "noted",
        "WANDB_TAGS": "one,two",
        "WANDB_RUN_GROUP": "pairs",
        "WANDB_DIR": str(tmp_path / "elsewhere"),
    }
    (tmp_path / "elsewhere").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        outcome = invoke(*SHORT, *REFERENCE, "logger.wandb.group=chosen", f"hydra.run.dir={tmp_path}/run")
        wandb.teardown()
    assert outcome.status == 0, outcome.err
    [path] = (tmp_path / "elsewhere").rglob("offline-run-*")
    run = of_type(read_records(path), "run")[-1]
    assert (run["project"], run["display_name"], run["notes"]) == ("mine", "first try", "noted")
    assert run["run_group"] == "chosen"
    assert {"one", "two", "GRU"} <= set(run["tags"])
    assert run["job_type"] == "copy"


@pytest.mark.usefixtures("own_home")
@pytest.mark.parametrize("mode", ["offline", "disabled"])
def test_wandb_is_offline_or_disabled_as_its_command_has_set_it(tmp_path: Path, mode: str) -> None:
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text(f"[default]\nmode = {mode}\n")  # what `wandb offline` writes
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_API_KEY", "0" * 40)
        outcome = invoke(*SHORT, *REFERENCE, f"hydra.run.dir={tmp_path}/run")
        wandb.teardown()
    assert outcome.status == 0, outcome.err
    assert len([*(tmp_path / "run").rglob("offline-run-*")]) == (mode == "offline")
    assert ("Weights & Biases is offline" in outcome.err) == (mode == "offline")
