"""Tables and pictures of runs and of sweeps, and evaluation with the numbers that training ended with."""

import fcntl
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import image
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from gyral import report, runs
from gyral.data.text import corpora, ngrams
from gyral.reports import catalogue as sweeps
from tests.helpers.running import SMALL_COPY, Outcome, choices, invoke, spawn
from tests.helpers.written import FIG4, RESULTS, TABLE1, metrics, write_answers, write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose best checkpoint is not its last one."""
    directory = tmp_path_factory.mktemp("runs") / "run"
    # with the highest loss as the best the first validation wins
    learning = ["optimizer=adam", "optimizer.lr=0.05", "task.monitor=val/loss", "task.mode=max"]
    outcome = invoke(*SMALL_COPY, "model=gru", *learning, f"hydra.run.dir={directory}")
    assert outcome.status == 0, outcome.err
    return directory


def table(outcome: Outcome) -> dict[str, str]:
    """Return the rows of a printed table."""
    assert outcome.status == 0, outcome.err
    return dict(re.findall(r"│ (\S.*?) +│ (.*?) +│", outcome.out))


@pytest.mark.parametrize("checkpoint", ["best", None])
def test_evaluation_gives_the_numbers_that_training_ended_with(run: Path, checkpoint: str | None) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    choice = [f"checkpoint={checkpoint}"] if checkpoint else []
    printed = table(invoke(f"run={run}", "split=test", *choice, entry="evaluate"))
    results = json.loads((run / "DONE").read_text())
    names = ("test/loss", "test/accuracy", "test/sequence_accuracy", "test/baseline")
    assert {name: float(printed[name]) for name in names} == pytest.approx({n: results[n] for n in names}, abs=1e-6)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()} == before


def test_other_splits_and_checkpoints_have_numbers_of_their_own(run: Path) -> None:
    scores = {
        (split, checkpoint): table(
            invoke(f"run={run}", f"split={split}", f"checkpoint={checkpoint}", entry="evaluate")
        )[f"{split}/loss"]
        for split, checkpoint in (("test", "best"), ("val", "best"), ("train", "best"), ("val", "last"))
    }
    assert len(set(scores.values())) == 4
    steps, values = runs.read_metrics(run, "val/loss")
    assert float(scores["val", "last"]) == pytest.approx(values[-1], abs=1e-6)
    assert float(scores["val", "best"]) == pytest.approx(max(values), abs=1e-6)
    assert steps == [8, 16, 24]


def test_results_table_says_whether_the_baseline_was_beaten(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report.print_results(tmp_path, RESULTS)
    printed = capsys.readouterr().out
    for words in ("0.02", "87.50%", "50.00%", "0.04", "yes, by a factor of 2", "13,710", "0.0123"):
        assert words in printed
    assert str(tmp_path) in re.sub(r"[│\s]", "", printed)
    report.print_results(tmp_path, {**RESULTS, "test/loss": 0.05})
    assert re.search(r"baseline beaten +│ no", capsys.readouterr().out)


@pytest.mark.parametrize("changes", [{"test/loss": 0.0}, {"test/loss": math.nan}, {"seconds_a_step": math.nan}])
def test_results_table_copes_with_corner_values(
    changes: dict[str, float], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report.print_results(tmp_path, {**RESULTS, **changes})
    assert "test accuracy" in capsys.readouterr().out


def test_losses_are_drawn(run: Path) -> None:
    picture = image.imread(run / "loss.png")
    height, width, _ = picture.shape
    assert height > 300
    assert width > 500
    colours = {tuple(pixel) for pixel in (picture[:, :, :3] * 255).astype(int).reshape(-1, 3)[::3]}
    assert len(colours) > 20, "nothing but paper"


@pytest.mark.parametrize(
    "text",
    [
        "step\n",
        "step,train/loss,train/baseline\n4,0.5,0.9\n",
        "step,train/loss,train/baseline,val/loss\n4,0.5,0.9,\n4,,,0.0\n",
        "step,train/loss,val/loss\n4,nan,\n4,,inf\n",
        "step,val/loss\n4,0.0\n",
    ],
    ids=["empty", "one row", "zero", "not finite", "nothing but zero"],
)
def test_a_picture_is_drawn_of_any_metrics(tmp_path: Path, text: str) -> None:
    path = report.plot_losses(metrics(tmp_path, text))
    assert image.imread(path).shape[2] == 4


def test_the_picture_shows_the_baseline(tmp_path: Path) -> None:
    rows = "".join(f"{step},{0.5 / step},{{}}\n" for step in range(1, 9))
    with_line = report.plot_losses(metrics(tmp_path, "step,train/loss,train/baseline\n" + rows.format(*[0.2] * 8)))
    first = image.imread(with_line)
    without = report.plot_losses(metrics(tmp_path, "step,train/loss,train/baseline\n" + rows.format(*[""] * 8)))
    assert (first != image.imread(without)).any()


def test_metrics_are_read_with_the_number_of_steps_taken(tmp_path: Path) -> None:
    metrics(tmp_path, "step,train/loss,val/loss\n4,0.5,\n4,,0.25\n9,0.125,\n")
    assert runs.read_metrics(tmp_path, "train/loss") == ([5, 10], [0.5, 0.125])
    assert runs.read_metrics(tmp_path, "val/loss") == ([5], [0.25])
    assert runs.read_metrics(tmp_path, "nothing") == ([], [])


def report_of(directory: Path) -> tuple[dict[str, list[str]], str]:
    """Return the cells of each row of the table that is printed, their lines joined, and all that is printed."""
    outcome = invoke(f"sweep={directory}", entry="report")
    assert outcome.status == 0, outcome.err
    assert not outcome.err
    head, *blocks = re.split(r"\n ─+ *\n", outcome.out)[1:-1]
    edges = [0, *(match.end() for match in re.finditer(r"\S+(?: \S+)*(?=  |$)", head.splitlines()[-1]))]
    cells = {}
    for block in blocks:
        rows = [line.ljust(edges[-1]) for line in block.splitlines()]
        # the first column is flush left, the others end where their heads end
        edges[1] = edges[0] + max(len(re.match(r" .*?(?=  )", row).group()) for row in rows)  # type: ignore[union-attr]
        parts = [" ".join(filter(None, (row[a:b].strip() for row in rows))) for a, b in itertools.pairwise(edges)]
        cells[parts[0]] = parts[1:]
    return cells, outcome.out


def test_a_table_has_means_and_deviations_beside_the_papers_numbers(tmp_path: Path) -> None:
    for seed, accuracy in ((1, 0.20), (2, 0.23)):
        write_run(tmp_path, f"{TABLE1}/gru", seed=seed, accuracy=accuracy)
    write_run(tmp_path, f"{TABLE1}/gru", length=50, accuracy=0.1751)
    for seed, steps in ((1, 9_000), (2, 8_000)):
        write_run(tmp_path, f"{TABLE1}/rum_lambda1", seed=seed, accuracy=0.9995, steps=steps)
    cells, printed = report_of(tmp_path)
    # the deviation of two values is their distance over √2: 3 / 1.414
    assert cells["GRU"] == [
        "21.5 ± 2.1 seeds 1, 2 100,000 steps",
        "21.5",
        "17.5 seed 1 100,000 steps seed 2 missing",
        "17.6",
        "12,030 12,050",
        "14k",
    ]
    assert cells["RUM λ = 1, η none"][:2] == ["100.0 ± 0.0 seeds 1, 2 8,000 to 9,000 steps", "100.0"]
    assert cells["WeiNet"] == ["missing", "100.0", "missing", "100.0", "–", "22k"]
    assert cells["uRNN (not in the paper)"] == ["missing", "–", "missing", "–", "–", "–"]
    assert list(cells) == [paper["row"] for paper in sweeps.load("rum_paper_table1").papers.values()]
    assert "Runs missing: 47, not done: 0." in printed
    given = "logger=none '~callbacks.progress_bar'"
    assert f"python -m src.train sweep=rum_paper_table1 {given} hydra.sweep.dir={tmp_path}\n" in printed


def test_runs_that_are_not_done_are_told(tmp_path: Path) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    failed = write_run(tmp_path, f"{TABLE1}/gru", seed=2)
    (failed / "FAILED").write_text("Traceback …\n  …\nNonFiniteError: step 8\n")
    stopped = write_run(tmp_path, f"{TABLE1}/lstm")
    early = write_run(tmp_path, f"{TABLE1}/lstm", length=50, seed=2)
    (early / "metrics.csv").unlink()
    cells, printed = report_of(tmp_path)
    assert cells["GRU"][0] == "25.0 seed 1 100,000 steps seed 2 FAILED"
    assert cells["LSTM"][0] == "seed 1 unfinished at step 40 seed 2 missing"
    assert cells["LSTM"][2] == "seed 2 unfinished at step 0 seed 1 missing"
    for line in (
        f"FAILED: {failed}: NonFiniteError: step 8",
        f"unfinished at step 40: {stopped}",
        f"unfinished at step 0: {early}",
    ):
        assert f"{line}\n" in printed
    assert "Runs missing: 48, not done: 3." in printed


def test_a_complete_sweep_needs_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = sweeps.load("rum_paper_table1")
    for experiment, length, seed in itertools.product(*sweep.axes.values()):
        write_run(sweeps.DIRECTORY / sweep.name, experiment, length=int(length), seed=int(seed), accuracy=0.5)
    cells, printed = report_of(Path("rum_paper_table1"))
    assert all(cells[name][0] == "50.0 ± 0.0 seeds 1, 2 100,000 steps" for name in cells)
    assert "gyral.train" not in printed


def test_runs_with_other_settings_are_not_mixed(tmp_path: Path) -> None:
    short = "+trainer.limit=300"
    write_run(tmp_path, f"{TABLE1}/gru", short, "threads=1", accuracy=0.1, steps=300)
    cells, printed = report_of(tmp_path)
    assert cells["GRU"][0] == "10.0 seed 1 300 steps seed 2 missing"
    assert f"all with {short}" in " ".join(printed.split())
    # a job's directory is named after all that was given
    assert f"sweep=rum_paper_table1 {short} logger=none threads=1 '~callbacks.progress_bar' hydra" in printed
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.3)
    write_run(tmp_path, f"{TABLE1}/gru", length=4, accuracy=0.4)
    cells, printed = report_of(tmp_path)
    assert cells["GRU"][:6:2] == [
        "30.0 seed 1 100,000 steps seed 2 missing",
        "missing",
        "40.0 seed 1 100,000 steps seed 2 missing",
    ]
    assert cells[f"GRU {short}"][0] == "10.0 seed 1 300 steps seed 2 missing"
    assert "all with" not in printed


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("DONE", '{"test/accuracy": 0.'),
        ("DONE", '{"test/accuracy": 0.5}'),
        ("config.yaml", ""),
        ("config.yaml", "seed: [1"),
        ("config.yaml", None),
        ("overrides.yaml", "{"),
        ("overrides.yaml", ""),
        ("metrics.csv", "step,train/loss\nx,y\n"),
        ("metrics.csv", "\0\0,\0\n1,2\n"),
        ("DONE", ""),
        ("DONE", "[]"),
    ],
)
def test_a_broken_run_directory_is_told_and_hides_no_other(tmp_path: Path, name: str, text: str | None) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    broken = write_run(tmp_path, f"{TABLE1}/gru", seed=2, accuracy=0.75)
    (broken / name).unlink()
    if text is not None:
        (broken / name).write_text(text)
    cells, printed = report_of(tmp_path)
    assert cells["GRU"][0] == "25.0 seed 1 100,000 steps seed 2 missing"
    assert re.search(rf"^{re.escape(str(broken))}: cannot be read: \S", printed, re.MULTILINE)


@pytest.mark.parametrize("text", ["[", "[]", None])
def test_numbers_without_provenance_are_told(tmp_path: Path, text: str | None) -> None:
    written = write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    (written / "provenance.json").unlink()
    if text is not None:
        (written / "provenance.json").write_text(text)
    cells, printed = report_of(tmp_path)
    assert cells["GRU"][0] == "25.0 seed 1 100,000 steps seed 2 missing"
    assert f"{written}: provenance.json cannot be read: no commit or command is known\n" in printed


def test_what_lies_in_a_run_directory_is_no_run(tmp_path: Path) -> None:
    run = write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    files = run / "wandb" / "offline-run-1" / "files"
    files.mkdir(parents=True)
    (files / "config.yaml").write_text("wandb_version: 1\n")
    _, printed = report_of(tmp_path)
    assert "cannot be read" not in printed


def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Keep the figures that are drawn from now on."""
    figures: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    return figures


def test_curves_are_drawn_of_every_row_in_two_panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, f"{FIG4}/lstm", accuracy=0.125)
    write_run(tmp_path, f"{FIG4}/lstm", seed=2, accuracy=0.125)
    write_run(tmp_path, f"{FIG4}/urnn", "optimizer.lr=0.1")
    (write_run(tmp_path, f"{FIG4}/goru") / "metrics.csv").unlink()
    figures = drawn(monkeypatch)
    outcome = invoke(f"sweep={tmp_path}", entry="report")
    assert outcome.status == 0, outcome.err
    assert f"Drawn: {tmp_path / 'loss_curves.png'}\n" in outcome.out
    upper, lower = figures[0].axes
    assert (upper.get_yscale(), lower.get_yscale()) == ("log", "linear")
    assert lower.get_ylim() == (0, 1.6)
    assert lower.get_xlabel() == "optimizer steps"
    assert upper.get_ylabel() == lower.get_ylabel() == "training loss (nats)"
    assert "mean of 5 steps" in figures[0].get_suptitle()
    legend = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert legend == ["LSTM", "uRNN\noptimizer.lr=0.1 (not done)", "memoryless baseline"]
    for axes in (upper, lower):
        both, other, baseline = axes.lines
        seeds = np.split(both.get_xdata(), [9])
        assert [list(steps[:-1]) for steps in seeds] == [[5, 10, 15, 20, 25, 30, 35, 40]] * 2
        assert all(np.isnan(steps[-1]) for steps in seeds)
        assert list(both.get_ydata())[:2] == [1, 0.5]
        assert set(baseline.get_ydata()) == {0.8}
        look = [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in (both, other)]
        assert all(here != there for here, there in zip(*look, strict=True))
    assert re.search(r"LSTM +0\.0200 +0\.5000 +12\.5 ± 0\.0  stays at the baseline", outcome.out)
    assert "unfinished at step 40" in outcome.out


def test_no_two_curves_look_alike() -> None:
    looks = [
        tuple(kinds[index % len(kinds)] for kinds in (report.COLOURS, report.DASHES, report.MARKERS))
        for index in range(180)
    ]
    assert len(set(looks)) == 180
    assert len({look[:2] for look in looks[:20]}) == 20, "colour and dashes alone"


@pytest.mark.parametrize(
    "losses",
    [
        "step\n",
        "step,train/loss,train/baseline\n4,nan,0.8\n",
        "step,train/loss\n4,0.0\n9,inf\n",
        "step,train/loss,train/baseline\n4,0.5,0.8\n9,nan,0.8\n14,0.0,0.8\n19,0.25,0.8\n",
    ],
    ids=["empty", "not finite", "zero", "mixed"],
)
def test_curves_are_drawn_of_any_metrics(tmp_path: Path, losses: str) -> None:
    write_run(tmp_path, f"{FIG4}/lstm", losses=losses)
    assert invoke(f"sweep={tmp_path}", entry="report").status == 0
    assert image.imread(tmp_path / "loss_curves.png").shape[2] == 4
    assert (tmp_path / "loss_curves.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("name", [sweep.name for sweep in sweeps.named()])
def test_every_sweep_says_how_it_is_shown(name: str) -> None:
    sweep = sweeps.load(name)
    assert sweep.title
    assert {"experiment", "seed"} <= set(sweep.axes)
    assert sweep.column is None or sweep.column in sweep.axes
    assert all(paper["row"] for paper in sweep.papers.values())


def test_a_directory_with_rows_of_several_sweeps_gives_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, f"{FIG4}/lstm")
    write_run(tmp_path, f"{TABLE1}/lstm")
    drawn(monkeypatch)
    out = invoke(f"sweep={tmp_path}", entry="report").out
    for name in ("rum_paper_fig4", "rum_paper_table1"):
        assert sweeps.load(name).title in out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "sweep=<nothing>: must be one of {SWEEPS}, or a directory that holds runs"),
        (["sweep=nothing"], "sweep=nothing: must be one of {SWEEPS}, or a directory"),
        (
            ["sweep=rum_paper_fig4"],
            "sweep=rum_paper_fig4: has not been run yet: python -m src.train sweep=rum_paper_fig4",
        ),
        (["sweep={}"], "sweep={}: there is no run there"),
        (["figure=nothing"], "figure=nothing: must be one of target_kernel, "),
        (["figure=target_kernel"], "run=<nothing>: must be a run directory"),
        (["figure=target_kernel", "run={}"], "run={}: must be a run directory, one that holds config.yaml"),
        (["run={}"], "run={}: is what a figure is drawn of; figure=<name> says which"),
        (["sweep={}", "save=table.pdf"], "save=table.pdf: must end in one of .html, .md, .tex, .csv"),
        (["sweep={}", "watch=2"], "watch=2: must be true or false"),
        (["sweep=wandb:gyral"], "sweep=wandb:gyral: must be wandb:<entity>/<project>"),
        (["sweeps=1"], "sweeps: no such option; allowed: sweep, save, runs, watch, figure, run"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = invoke(*(argument.format(tmp_path) for argument in arguments), entry="report").error
    assert error.startswith(expected.format(tmp_path, SWEEPS=", ".join(choices("sweep"))))
    assert not list(tmp_path.iterdir())


def test_runs_of_no_row_have_a_table_of_what_differs(tmp_path: Path) -> None:
    for rate, seed, loss in ((0.1, 1, 0.02), (0.1, 2, 0.04), (0.2, 1, None)):
        given = ("task.delay=3", "model=gru", f"optimizer.lr={rate}")
        written = write_run(tmp_path, "none", *given, seed=seed, accuracy=None if loss is None else 0.5)
        (written / "overrides.yaml").write_text(OmegaConf.to_yaml([*given, f"seed={seed}", "threads=1"]))
        if loss is not None:
            (written / "DONE").write_text(json.dumps({**RESULTS, "test/loss": loss, "steps": 40}))
    cells, printed = report_of(tmp_path)
    # the deviation of two values is their distance over √2
    expected = ["2 of 2 seeds 1, 2 40 steps", "0.0300 ± 0.0141", "0.7500", "87.5 ± 0.0", "13,710"]
    assert cells["model=gru optimizer.lr=0.1"] == expected
    assert cells["model=gru optimizer.lr=0.2"][0] == "0 of 1 seed 1 unfinished at step 40"
    assert "all with task.delay=3" in " ".join(printed.split())
    resume = "Runs missing: 0, not done: 1. To go on: python -m src.train \"resume='"
    assert f"{resume}{tmp_path}/none-None-1-task.delay=3-model=gru-optimizer.lr=0.2'\"\n" in printed


def test_the_rest_of_a_multirun_is_told_with_its_command(tmp_path: Path) -> None:
    given = ["model=gru,lstm", "optimizer.lr=0.1,1e-3", "task.delay=3", "~callbacks.progress_bar"]
    written = write_run(tmp_path, "none", accuracy=0.5)
    job = ["model=gru", "optimizer.lr=0.1", "task.delay=3", "~callbacks.progress_bar=null"]
    (written / "overrides.yaml").write_text(OmegaConf.to_yaml(job))
    sweeper = {"_target_": "hydra._internal.core_plugins.basic_sweeper.BasicSweeper", "params": None}
    overrides = {"task": given, "hydra": [f"hydra.sweep.dir={tmp_path}", "hydra.mode=MULTIRUN"]}
    multirun = {"hydra": {"overrides": overrides, "sweeper": sweeper}}
    (tmp_path / "multirun.yaml").write_text(OmegaConf.to_yaml(multirun))
    command = f"model=gru,lstm optimizer.lr=0.1,1e-3 task.delay=3 '~callbacks.progress_bar' hydra.sweep.dir={tmp_path}"
    expected = f"Runs missing: 3, not done: 0. To go on: python -m src.train -m {command}\n"
    assert expected in report_of(tmp_path)[1]


def test_figures_of_one_run_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("gyral.reports.figures.draw", lambda *arguments: asked.append(arguments) or "picture.png")
    assert invoke("figure=cosines", f"run={tmp_path}", entry="report").out == "picture.png\n"
    assert invoke("figure=derivatives", entry="report").status == 0
    assert asked == [("cosines", tmp_path), ("derivatives", None)]


def test_a_report_of_a_sweep_needs_no_torch(tmp_path: Path) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    script = f"""
import sys
from gyral import report
from gyral.config import command_line as cli
sys.argv = ["src/report.py", "sweep={tmp_path}"]
cli.main(report.report, "_report/report")
print([name for name in ("torch", "pytorch_lightning", "wandb") if name in sys.modules])
"""
    outcome = spawn("-c", script)
    assert outcome.status == 0, outcome.err
    assert outcome.out.endswith("\n[]\n")


def test_help_shows_what_can_be_asked_for() -> None:
    out = invoke("--help", entry="report").out
    assert "python -m src.report sweep=rum_paper_table1" in out
    assert "figure: null" in out


def test_a_table_in_bits_has_ngrams_below_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text.txt"
    text.write_text("abcabcabd" * 400)
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "cache"))
    corpus = {"_target_": "gyral.data.text.corpora.load_file", "path": str(text), "data_dir": str(tmp_path / "data")}
    for seed, bits in ((1, 1.2394), (2, 1.2414)):
        run = write_run(tmp_path, "rum_paper/table3/lstm_1000", seed=seed, accuracy=0.7)
        (run / "config.yaml").write_text(OmegaConf.to_yaml({"seed": seed, "task": {"corpus": corpus}}))
        results = {**json.loads((run / "DONE").read_text()), "test/bits": bits, "parameters": 4_586_450}
        (run / "DONE").write_text(json.dumps(results))
    cells, printed = report_of(tmp_path)
    assert cells["LSTM 1000"] == ["1.240 ± 0.001 seeds 1, 2 100,000 steps", "1.240", "4,586,450", "4.5M"]
    assert cells["FS-RUM-2"] == ["missing", "1.189", "–", "11.2M"]
    expected = ngrams.evaluate(corpora.load_file(text, tmp_path), 7)
    for order in (1, 3, 5, 7):
        assert cells[f"{order}-gram (Witten–Bell)"] == [f"{expected[order - 1].bits:.3f}", "–", "–", "–"]
    assert 1.88 < expected[0].bits < 1.9
    assert expected[4].bits < 0.5

    text.unlink()
    cells, printed = report_of(tmp_path)
    assert "1-gram (Witten–Bell)" not in cells
    assert f"No n-grams: path={text}: cannot be read (No such file or directory)\n" in printed


def test_a_table_of_tasks_has_averages_beside_the_papers_and_counts_what_is_solved(tmp_path: Path) -> None:
    for qa in range(1, 21):
        write_answers(tmp_path, "lstm", qa, 0.95 if qa < 3 else 0.5, stand_ins=float(qa == 3))
    for seed, accuracy in ((1, 0.9), (2, 1.0)):
        write_answers(tmp_path, "word_gru", 4, accuracy, seed=seed, generated=1.0)
    write_answers(tmp_path, "word_gru", 5, None)
    joint = {f"accuracy_qa{qa}": 0.05 * qa for qa in range(1, 21)}
    write_answers(tmp_path, "gru_attention", "all", 0.525, **joint)
    outcome = invoke(f"sweep={tmp_path}", entry="report")
    assert outcome.status == 0, outcome.err

    def cells(line: str) -> list[str]:
        return re.split(r"  +", line.strip())

    lines = [cells(line) for line in outcome.out.splitlines()]
    # 2 tasks at 95.0 % and 18 at 50.0 %, one of them trained on less
    assert ["LSTM", "54.5°", "67.2", "2 of 20", "60,000"] in lines
    assert ["GRU, words", "95.0*", "58.2", "1 of 1", "60,000"] in lines
    assert ["of 1 of 20"] in lines
    index = lines.index(["GRU, attention", "52.5", "77.3", "2 of 20", "60,000"])
    assert lines[index + 1] == ["task.qa=all"]
    assert ["RUM λ = 1", "missing", "79.0", "–", "–"] in lines
    assert ["1", "95.0", "5.0", "–", "50.0"] in lines
    assert ["3", "50.0°", "15.0", "–", "50.0"] in lines
    index = lines.index(["4", "50.0", "20.0", "95.0*", "50.0"])
    assert lines[index + 1] == ["± 7.1"]
    assert ["5", "50.0", "25.0", "unfinished at step 40", "50.0"] in lines
    assert ["20", "50.0", "100.0", "–", "50.0"] in lines
    assert "° trained on the 1k file" in outcome.out
    assert "* on GENERATED stories" in outcome.out
    assert "python -m src.train sweep=rum_paper_table2 " in outcome.out


def write_failure(directory: Path, row: str, *lines: str) -> Path:
    """Write a run that ended with a traceback of these last lines."""
    failed = write_run(directory, f"{TABLE1}/{row}")
    traceback = ["Traceback (most recent call last):", '  File "src/train.py", line 9, in train', "    raise", *lines]
    (failed / "FAILED").write_text("\n".join(traceback) + "\n")
    return failed


def test_failures_are_told_with_their_reasons(tmp_path: Path) -> None:
    memory = "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: 720000000000 bytes."
    reasons = {
        "gru": ("gyral.training.build.LocatedError: model.cell.zoneout=7: must be below 1",),
        "lstm": ("gyral.training.callbacks.NonFiniteError: step 2: the loss is nan",),
        "goru": (memory, "Error code 12 (Cannot allocate memory)"),
    }
    failed = {row: write_failure(tmp_path, row, *lines) for row, lines in reasons.items()}
    printed = report_of(tmp_path)[1]
    for row, lines in reasons.items():
        assert f"FAILED: {failed[row]}: {' '.join(lines)}\n" in printed


def test_what_is_missing_in_a_sweep_is_all_that_its_command_runs(tmp_path: Path) -> None:
    sweep = sweeps.load("rum_paper_table1")
    for experiment, length, seed in itertools.product(*sweep.axes.values()):
        if experiment != f"{TABLE1}/gru" or (length, seed) == ("30", "1"):
            write_run(tmp_path, experiment, length=int(length), seed=int(seed), accuracy=0.5)
    (tmp_path / "own" / "gru").mkdir(parents=True)
    stopped = write_run(tmp_path, f"{TABLE1}/gru", length=50, seed=2)
    stopped.rename(tmp_path / "own" / "gru" / "seed=2,task.length=50")  # as the sweep names it in its folder, own
    printed = report_of(tmp_path)[1]
    given = f"experiment={TABLE1}/gru logger=none '~callbacks.progress_bar' hydra.sweep.dir={tmp_path}/own"
    expected = f"Runs missing: 2, not done: 1. To go on: python -m src.train sweep=rum_paper_table1 {given}\n"
    assert expected in printed
    assert "resume=" not in printed


def test_a_run_that_a_process_is_at_is_running(tmp_path: Path) -> None:
    written = write_run(tmp_path, f"{TABLE1}/gru")
    with (written / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        running = sweeps.read(tmp_path)[0][0].state
        assert ("resume=" in report_of(tmp_path)[1]) is not Path("/proc/locks").exists(), "it is left alone"
    assert running == ("running at step 40" if Path("/proc/locks").exists() else "unfinished at step 40")
    assert sweeps.read(tmp_path)[0][0].state == "unfinished at step 40"


def test_runs_are_listed_on_demand_and_a_commit_that_is_not_the_code_is_marked(tmp_path: Path) -> None:
    clean = write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    changed = write_run(tmp_path, f"{TABLE1}/gru", seed=2, accuracy=0.25)
    (changed / "git.diff").write_text("+")
    outcome = invoke(f"sweep={tmp_path}", "runs=true", entry="report")
    assert f"GRU: seed 1, DONE, {clean}, commit ac466c4a76, W&B 0f22b828c43a, 2026-11-21" in outcome.out
    assert f"GRU: seed 2, DONE, {changed}, commit ac466c4a76 + uncommitted changes, W&B" in outcome.out
    assert outcome.out.count("    python -m src.train -m seed=1,2 '~callbacks.progress_bar'\n") == 2
    assert str(clean) not in invoke(f"sweep={tmp_path}", entry="report").out


@pytest.mark.parametrize("text", ["step,train/loss\n4,0.5\n9,0.12", "step,train/loss\n4,0.5\n9"])
def test_metrics_that_are_half_written_count_up_to_the_last_whole_line(tmp_path: Path, text: str) -> None:
    written = write_run(tmp_path, f"{TABLE1}/gru", losses=text)
    [job], told = sweeps.read(tmp_path)
    assert (job.curves["train/loss"].steps, job.curves["train/loss"].values) == ([5], [0.5])
    assert told == [f"{written}: the last line of metrics.csv is cut off and left out"]


def test_a_thinned_curve_keeps_its_extremes_and_ends() -> None:
    values = [math.sin(step) for step in range(1000)]
    values[500], values[700], values[800] = 7.0, -7.0, math.nan
    curve = sweeps.thin(list(range(1000)), values, points=100)
    assert len(curve.steps) <= 102
    assert (curve.steps[0], curve.steps[-1]) == (0, 999)
    assert (max(curve.values), min(curve.values)) == (7.0, -7.0)
    assert all(values[step] == value for step, value in zip(curve.steps, curve.values, strict=True))
    assert curve.logged == 1000


def test_results_that_are_not_finite_have_a_mean(tmp_path: Path) -> None:
    for seed, accuracy in ((1, math.nan), (2, 0.5)):
        write_run(tmp_path, f"{TABLE1}/gru", seed=seed, accuracy=accuracy)
    assert report_of(tmp_path)[0]["GRU"][0].startswith("nan ± nan")


def test_a_watched_report_ends_when_all_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [write_run(tmp_path, "none", "model=gru", seed=seed) for seed in (1, 2)]
    for run in written:
        (run / "overrides.yaml").write_text("- model=gru\n")

    def finish_one(seconds: float) -> None:
        run = written.pop()
        (run / ("DONE" if written else "FAILED")).write_text(json.dumps({**RESULTS, "steps": 40}))

    monkeypatch.setattr("gyral.report.time.sleep", finish_one)
    out = invoke(f"sweep={tmp_path}", "watch=true", entry="report").out
    lines = out.splitlines()
    assert lines[:3] == ["0 done, 2 unfinished", "1 done, 1 unfinished", "1 done, 1 FAILED"]
    assert "Runs on" in lines[3]


def test_a_watched_report_is_ended_by_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gyral.report.time.sleep", interrupt)
    outcome = invoke(f"sweep={tmp_path}", "watch=true", entry="report")
    assert outcome.status == 0
    assert outcome.out.startswith("1 done, 51 missing\n")
    assert "Table 1" in outcome.out
