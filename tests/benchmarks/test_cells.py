"""The cell benchmark: what it reports, and that it refuses to when a backend is wrong."""

import json
from functools import partial

import pytest
import torch
from torch import nn

from benchmarks import cells, equivalence, measure, plots, sequences
from benchmarks.equivalence import UNUSABLE, disagreements
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.plotting.style import cell_styles

TINY = ["size=4x6x12", "input=3", "repeat=1", "threads=1"]
SIZE = cells.Size(batch=4, steps=6, input=3, hidden=12)
FIGURES = ("forward_ms", "train_ms", "train_ms_per_time_step", "forward_ratio", "train_ratio")


def refused(capsys, arguments: list[str]) -> str:
    """Run and return the complaint; assert the status 1 and that nothing like a figure was printed."""
    assert cells.main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_reports_a_row_per_case_in_table_and_file(capsys, monkeypatch, tmp_path):
    # each case would start a process; `test_peak_memory_includes_the_memory_for_backward` measures memory
    monkeypatch.setattr(measure, "peak_memories", lambda makers, shape, threads: [1.0] * len(makers))
    path = tmp_path / "cells.jsonl"
    assert cells.main([*TINY, "model=gru,rum:lambd=1", f"json={path}", f"plot={tmp_path / 'cells.png'}"]) == 0
    assert (tmp_path / "cells.png").stat().st_size > 10_000
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    cases = {(row["model"], row["backend"]) for row in rows}
    assert cases >= {("torch.nn.RNN", "torch"), ("torch.nn.GRU", "torch"), ("torch.nn.LSTM", "torch")}
    assert cases >= {("gru", "reference"), ("gru", "fused"), ("rum:lambd=1", "reference")}
    printed = capsys.readouterr().out
    for row in rows:
        assert all(row[figure] > 0 for figure in FIGURES)
        assert row["train_ms_per_time_step"] == pytest.approx(row["train_ms"] / 6)
        assert {"peak_memory_mib", "memory_ratio", "torch", "cpu", "threads", "commit", "date"} <= row.keys()
        assert (row["batch"], row["steps"], row["input"], row["hidden"], row["repeat"]) == (4, 6, 3, 12, 1)
        line = next(line for line in printed.splitlines() if line.startswith(f"| {row['model']} "))
        assert len(line.split("|")) == len(cells.COLUMNS) - len(cells.KINDS[1:]) + 4
    assert all(row["products_ratio"] > 0 for row in rows)
    base = next(row for row in rows if row["model"] == cells.BASELINE)
    assert base["forward_ratio"] == base["train_ratio"] == 1


def test_ragged_batches_and_resets_are_measured_where_they_are_supported(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "peak_memories", lambda makers, shape, threads: [1.0] * len(makers))
    path = tmp_path / "cells.jsonl"
    assert cells.main([*TINY, "model=lstm:layer_norm=true", "sequences=ragged,resets", f"json={path}"]) == 0
    rows = {(row["model"], row["backend"]): row for row in map(json.loads, path.read_text().splitlines())}
    for (_, backend), row in rows.items():
        assert row["ragged_ratio"] == pytest.approx(row["ragged_ms"] / row["train_ms"])
        assert (row["resets_ms"] is None) == (row["resets_ratio"] is None) == (backend == "torch")
    printed = capsys.readouterr().out
    assert "ragged ×" in printed
    assert "resets ×" in printed


def test_edges_are_measured_for_cells_that_read_along_them(monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "peak_memories", lambda makers, shape, threads: [1.0] * len(makers))
    path = tmp_path / "cells.jsonl"
    assert cells.main([*TINY, "model=rnn,mage_gru", "backend=fused", "sequences=edges", f"json={path}"]) == 0
    rows = {row["model"]: row for row in map(json.loads, path.read_text().splitlines())}
    assert rows["mage_gru"]["edges_ratio"] > 0
    assert rows["rnn"]["edges_ratio"] is rows["torch.nn.GRU"]["edges_ratio"] is None
    edges = sequences.draw("edges", 130, 5).edges
    assert edges[0].sum() == 0
    assert ((edges[1:] >= 1) & (edges[1:] <= torch.arange(1, 130).clamp(max=100).view(-1, 1, 1, 1))).all()


def test_a_fused_path_that_ignores_lengths_or_resets_disagrees(monkeypatch):
    case, fused = cells.Case("lstm:layer_norm=true", "fused"), LSTMCell.fused
    makers, size = {case: partial(cells.build_cell, case, 3, 12)}, cells.Size(16, 30, 3, 12)
    for position, kind in ((2, "ragged"), (3, "resets")):
        assert list(cells.disagreeing_cases(makers, size, {}, kind)) == []

        def deaf(self, *arguments, position=position):
            return fused(self, *(None if index == position else given for index, given in enumerate(arguments)))

        with monkeypatch.context() as patched:
            patched.setattr(LSTMCell, "fused", deaf)
            (line,) = cells.disagreeing_cases(makers, size, {}, kind)
        assert line.startswith(f"{case.model}: fused: relative error of outputs")
        assert line.endswith(f", {kind}")


def test_ragged_lengths_have_half_the_steps_in_the_mean_and_a_hundredth_of_the_steps_are_resets():
    lengths = sequences.draw("ragged", 50, 99).lengths
    assert lengths.double().mean() == pytest.approx(25.5, abs=0.1)
    assert (lengths.min(), lengths.max()) == (1, 50)
    assert sequences.draw("resets", 100, 500).starts.double().mean() == pytest.approx(0.01, rel=0.1)
    assert sequences.draw("whole", 50, 99) == sequences.WHOLE


def test_every_model_file_is_measured_by_default():
    assert {*cells.parse(TINY).model} >= {*cells.MODELS, "rum:lambd=1"}


def scaled(fused):
    """Break a fused path where it is least seen: its outputs are right, their gradient is off by a thousandth."""

    def broken(self, inputs, *others):
        outputs, final = fused(self, inputs, *others)
        return outputs.detach() + 1.001 * (outputs - outputs.detach()), final

    return broken


def shortened(fused):
    """Let a fused path ignore the state that it is given."""
    return lambda self, inputs, state, *others: fused(self, inputs, self.init_state(inputs.shape[1]), *others)


@pytest.mark.parametrize(("breaking", "tensor"), [(scaled, "gradient of inputs"), (shortened, "outputs")])
def test_refuses_when_a_fused_path_is_wrong(capsys, monkeypatch, tmp_path, breaking, tensor):
    monkeypatch.setattr(GRUCell, "fused", breaking(GRUCell.fused))
    path = tmp_path / "cells.jsonl"
    complaint = refused(capsys, [*TINY, "model=gru", f"json={path}"])
    assert f"gru: fused: relative error of {tensor}" in complaint
    assert not path.exists()


def test_refuses_when_torch_computes_something_else(capsys, monkeypatch):
    class ReluRNN(nn.RNN):
        def __init__(self, input_size, hidden_size):
            super().__init__(input_size, hidden_size, nonlinearity="relu")

    monkeypatch.setitem(cells.LAYERS, "torch.nn.RNN", ReluRNN)
    assert "rnn: torch: relative error of outputs" in refused(capsys, [*TINY, "model=gru"])


def test_a_result_that_is_not_a_number_is_a_disagreement(monkeypatch):
    makers = cells.candidates(cells.parse([*TINY, "model=gru"]), SIZE)
    make = makers[cells.Case("gru", "fused")]

    def poisoned():
        module = make()
        nn.init.constant_(module.cells[0].layer.bias_hh_l0, torch.nan)
        return module

    lines = list(disagreements(makers[cells.Case("gru", "reference")], {"poisoned": poisoned}, (6, 4, 3)))
    assert len(lines) == 1
    assert "outputs is nan" in lines[0]


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("foo=1", ["foo=1", "size"]),
        ("repeat=0", ["repeat=0", "≥ 1"]),
        ("repeat", ["repeat=None", "integer"]),
        ("size=8x9", ["size=8x9", "paper", "growth", "128x53x50"]),
        ("size=0x9x9", ["size=0x9x9", "128x53x50"]),
        ("plot=cells.txt", ["plot=.txt", ".png"]),
        ("threads=1.5", ["threads=1.5", "integer"]),
        ("repeat=[", ["repeat=[", "key=value"]),
        ("model=foo", ["model=foo", *cells.MODELS]),
        ("model=rum:lam=1", ["lam=1", "lambd"]),
        ("model=rum:lambd", ["model=rum:lambd", "<option>=<value>"]),
        ("model=rum:lambd=x", ["lambd=x", "number"]),
        ("backend=auto", ["backend=auto", "reference", "fused"]),
        ("sequences=short", ["sequences=short", "ragged", "resets"]),
        ("json=no/such/folder/file", ["json=no/such/folder/file", "folder"]),
    ],
)
def test_a_bad_argument_is_one_line(capsys, argument, words):
    assert cells.main([argument]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert all(word in captured.err for word in words)


def test_help_names_every_key(capsys):
    assert cells.main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"{key}=" in printed for key in cells.Settings._fields)


def test_sizes_are_parsed_and_named_sets_are_the_paper_and_growth():
    assert cells.parse(["size=8x9x10,paper,8x9x10"]).size == ((8, 9, 10), *cells.SIZES["paper"])
    grown = cells.parse(["size=growth"]).size
    assert [len({size[axis] for size in grown}) for axis in range(3)] == [5, 5, 5]


def test_a_plot_of_growth_has_a_panel_for_each_dimension_that_varies(tmp_path):
    rows = [
        {
            "model": "gru",
            "backend": "fused",
            "batch": b,
            "steps": t,
            "hidden": n,
            "train_ms": b * t * n,
            "train_ratio": 1,
        }
        for b, t, n in cells.SIZES["growth"]
    ]
    plots.plot(rows, str(tmp_path / "growth.svg"), cells.BASELINE)
    drawn = (tmp_path / "growth.svg").read_text()
    for key in ("steps", "hidden", "batch"):
        assert f"growth with {key}" in drawn


def test_cases_have_the_color_of_their_cell():
    looks = plots.case_styles([("torch.nn.GRU", "torch"), ("gru", "fused"), ("rum:lambd=1", "fused")])
    colors = [looks[case]["color"] for case in looks]
    assert colors == [look["color"] for look in cell_styles(["GRU", "RUM", "GRU"])]


def test_a_loop_whose_states_do_not_fit_into_memory_is_left_out():
    large = cells.Size(128, 10**6, 36, 500)
    assert not cells.fits(cells.Case("rum:lambd=1", "reference"), large)
    assert cells.fits(cells.Case("rum:lambd=1", "reference"), SIZE)
    assert cells.fits(cells.Case("rum:lambd=1", "fused"), large)
    (line,) = cells.omitted_cases(cells.parse(["model=rum:lambd=1"]), large)
    assert line == "rum:lambd=1 reference is omitted: it would keep 256512 GB."


@pytest.mark.slow
def test_peak_memory_includes_the_memory_for_backward():
    """RUM with λ = 1 keeps T·B·N² memory values for backward: 128 MiB here; the GRU's share does not reach a tenth."""
    makers = cells.candidates(cells.parse(["model=rum:lambd=1"]), cells.Size(32, 256, 4, 64))
    chosen = [makers[cells.Case("torch.nn.GRU", "torch")], makers[cells.Case("rum:lambd=1", "reference")]]
    gru, rum = measure.peak_memories(chosen, (32, 256, 4), threads=1)
    assert 0 < gru < 30
    assert 128 < rum < 300


def test_fewer_steps_are_compared_where_rounding_makes_the_reference_useless(monkeypatch):
    tried = []

    def fake(reference, candidates, shape, seed, largest, **others):
        tried.append(shape[0])
        if shape[0] > 30:
            yield f"{UNUSABLE}: relative error 1"

    monkeypatch.setattr(equivalence, "disagreements", fake)
    makers = {cells.Case("gru", "fused"): partial(cells.build_cell, cells.Case("gru", "fused"), 3, 12)}
    assert list(cells.disagreeing_cases(makers, SIZE._replace(steps=100), {})) == []
    assert tried == [100] * equivalence.DRAWS + [50] * equivalence.DRAWS + [25]
    (line,) = cells.disagreeing_cases(makers, SIZE._replace(steps=39), {})  # half of which would be too few
    assert line == f"gru: {UNUSABLE}: relative error 1"


def test_the_floor_of_a_cell_made_of_cells_has_the_products_of_each():
    shapes = {
        "lstm": (((48, 3), (48, 12)),),
        "fs_lstm": (((48, 12), (48, 12)), ((48, 3), (48, 12)), ((48, 12), (48, 12))),
        "fs_rum": (((36, 12), (24, 12)), ((48, 3), (48, 12)), ((48, 12), (48, 12))),
        "eurnn": None,
    }
    for model, expected in shapes.items():
        assert measure.weight_shapes(cells.build_cell(cells.Case(model, "reference"), 3, 12)) == expected
    products = measure.Products(6, 4, shapes["fs_rum"])
    products.forward()
    products.train()
