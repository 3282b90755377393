"""metrics.csv holds every row once, whatever happened to the run; Weights & Biases never asks."""

import csv
from pathlib import Path

import pytest

from gyral.runs.wandb_key import has_wandb_key
from gyral.training.loggers import MetricsFile


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


def test_a_key_is_found_in_the_variable_and_in_netrc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = "https://api.wandb.ai"
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    assert not has_wandb_key(server)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert has_wandb_key(server)
    monkeypatch.delenv("WANDB_API_KEY")

    netrc = tmp_path / ".netrc"
    netrc.write_text("machine elsewhere.org\n  login user\n  password word\n")
    netrc.chmod(0o600)
    assert not has_wandb_key(server)
    netrc.write_text(f"machine api.wandb.ai\n  login user\n  password {'0' * 40}\n")
    assert has_wandb_key(server)
    assert has_wandb_key("https://api.wandb.ai:443/")
    assert not has_wandb_key("https://wandb.example.org/api")
    netrc.write_text("this is not a netrc file")
    assert not has_wandb_key(server)
