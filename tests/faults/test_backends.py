"""The log names the backend that runs, for a cell of every family of kernels, also with a compiler that fails."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from hydra.utils import get_class, instantiate
from torch import Tensor

from gyral.nn import choice, recurrent
from gyral.nn.recurrent import Recurrent
from gyral.ops import operator
from gyral.ops.native import library
from gyral.training.callbacks.checkpoints import Checkpoints
from tests.faults import forks
from tests.helpers.attacks import Attack
from tests.helpers.found import at_least
from tests.helpers.kernels import forget_kernels, operators
from tests.helpers.running import ENTRIES, SMALL_COPY, choices, compose_choices

SIZES = {"hidden_size": 20, "input_size": 3, "steps": 6, "rows": 2}
# A cell, with its options after a colon, of each family (a folder of `gyral.ops`) that is not a `fused_operator`.
FAMILIES = {
    "block_projections": "mlstm",
    "channel_scan": "s4d",
    "diagonal": "lru",
    "fast_slow": "fs_lstm",
    "fast_weights": "fast_weights",
    "gated": "on_lstm",
    "gated_heads": "mlstm",
    "gated_norm": "delta_net",
    "graph_gru": "mage_gru",
    "lie_access": "lantm",
    "rotation_power": "rum:lambd=0.5",
    "rum": "rum",
    "rwkv7": "rwkv7",
    "selective_scan": "mamba",
    "short_convolution": "mamba2",
    "slot_memory": "ntm",
    "stabilized_gates": "mlstm",
    "token_shift": "rwkv7",
}
OTHERS = ("lstm", "external")  # without kernels of ours: one has a fused path, one has none
needs_compiler = pytest.mark.skipif(library.compiler() is None, reason="needs a C++ compiler")


class Observed(NamedTuple):
    """What ran of a cell.

    Attributes:
        backend: the backend of the network.
        messages: what it has logged about the backend.
        path: "loop" or "fused path", or both.
        kernels, twins: of the families with kernels for a CPU, those whose kernels ran, and those that ran plain torch.
        outputs: the outputs for random inputs, which depend on the name of the cell alone.
        missing: the lines of the log about kernels that are unavailable.
    """

    backend: str
    messages: set[str]
    path: set[str]
    kernels: set[str]
    twins: set[str]
    outputs: Tensor
    missing: list[str]


@functools.cache
def families() -> dict[str, str]:
    """Return a cell of each family of kernels."""
    found, names = {}, {id(each): name for name, each in operators().items()}
    for cell, chosen in compose_choices("cell").items():
        named = getattr(get_class(chosen["_target_"]), "fused_operator", None)
        if id(named) in names:
            found.setdefault(names[id(named)], cell)
    return FAMILIES | found


def observe(cell: str) -> Observed:
    """Run a cell, and observe what runs."""
    seen: dict[str, set[str]] = {"path": set(), "kernels": set(), "twins": set()}
    messages: list[str] = []

    def note(kind: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            seen[kind].add(name)
            return function(*arguments, **options)

        return noted

    choose = Recurrent._choose_backend

    def choose_and_note(self: Recurrent, cell: Any, *arguments: Any) -> str:
        if "fused" not in vars(cell):
            cell.fused = note("path", "fused path", cell.fused)
        return choose(self, cell, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recurrent, "scan", note("path", "loop", recurrent.scan))
        patch.setattr(choice.log, "info", lambda text, **_: messages.append(text))
        patch.setattr(operator.log, "warning", lambda text, *values: messages.append(text % values))
        patch.setattr(Recurrent, "_choose_backend", choose_and_note)
        for name, family in operators("cpu").items():
            patch.setattr(family, "naive", note("twins", name, family.naive))
            patch.setattr(family, "prepare", note("kernels", name, family.prepare))
        torch.manual_seed(0)
        name, *options = cell.split(":")
        given = {key: float(value) for key, value in (option.split("=") for option in options)}
        factory = instantiate(compose_choices("cell")[name], hidden_size=SIZES["hidden_size"], **given)
        model = Recurrent(factory, SIZES["input_size"], dtype=torch.float64).eval()
        with torch.no_grad():
            outputs, _ = model(torch.randn(SIZES["steps"], SIZES["rows"], SIZES["input_size"], dtype=torch.float64))
    found = {message for message in messages if " runs on the " in message}
    missing = [message for message in messages if " is unavailable: " in message]
    return Observed(model.backend, found, seen["path"], seen["kernels"], seen["twins"], outputs, missing)


@pytest.fixture(scope="module", params=["a cell of each family", pytest.param("all cells", marks=pytest.mark.slow)])
def cells(request: pytest.FixtureRequest) -> list[str]:
    others = OTHERS if "each" in request.param else at_least(46, choices("cell"))
    return [*dict.fromkeys((*families().values(), *others))]


@pytest.fixture(scope="module")
def compiled(cells: list[str]) -> dict[str, Observed]:
    """What runs with a compiler."""
    return {cell: observe(cell) for cell in cells}


@pytest.fixture(scope="module")
def uncompiled(cells: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Observed]:
    """What runs in a process whose compiler fails, and in which no compiled kernel is cached."""
    folder = tmp_path_factory.mktemp("uncompiled")
    compose_choices("cell")  # before the fork, which would compose for itself

    def call() -> None:
        os.environ |= {"CXX": "false", "GYRAL_CACHE": str(folder / "cache")}
        forget_kernels()
        torch.save({cell: tuple(observe(cell)) for cell in cells}, folder / "observed")

    ended = forks.fork(call, folder, limit=60)
    assert ended.status == 0, ended
    return {cell: Observed(*found) for cell, found in torch.load(folder / "observed", weights_only=False).items()}


def check_log(cell: str, found: Observed) -> None:
    """Check that one line of the log names the backend, and that this one ran."""
    (message,) = found.messages
    assert f" runs on the {found.backend} backend (requested: auto" in message, cell
    assert found.path == {"loop" if found.backend == "reference" else "fused path"}, (cell, found)


def test_every_family_has_a_cell() -> None:
    assert families().keys() == set(at_least(19, operators("cpu")))


@needs_compiler
def test_the_log_names_the_backend_that_runs_with_a_compiler(compiled: dict[str, Observed]) -> None:
    for cell, found in compiled.items():
        check_log(cell, found)
        assert not found.twins, (cell, found)
    for family, cell in families().items():
        assert compiled[cell].backend == "fused", cell
        assert family in compiled[cell].kernels, (cell, compiled[cell])


def test_the_log_names_the_backend_that_runs_without_a_compiler(uncompiled: dict[str, Observed]) -> None:
    for cell, found in uncompiled.items():
        check_log(cell, found)
        assert not found.kernels, (cell, found)
        assert found.backend == "fused" or not found.twins, (cell, found)
    for family, cell in families().items():
        found = uncompiled[cell]
        assert family in found.twins if found.backend == "fused" else "false" in str(found.messages), (cell, found)


def test_one_line_says_why_a_kernel_does_not_run(uncompiled: dict[str, Observed]) -> None:
    lines = [line for found in uncompiled.values() for line in found.missing]
    assert len(lines) == len({*lines})  # once for each kernel
    assert all("false failed: status 1; PyTorch runs instead, with other last digits" in line for line in lines)
    for family, cell in families().items():
        of_cell = [line for line in uncompiled[cell].messages if "false failed: status 1" in line]
        of_family = [line for line in lines if f"The kernel {family} " in line]  # also by another cell of the family
        assert len(of_cell or of_family) == 1, (cell, of_cell, of_family)


@needs_compiler
def test_no_line_names_a_kernel_that_is_compiled(compiled: dict[str, Observed]) -> None:
    assert not [line for found in compiled.values() for line in found.missing]


# Whether the process that made the checkpoint had compiled kernels, and whether the one that resumes has: what it says.
RESUMED = {
    (True, True): None,
    (False, False): None,
    (None, False): None,  # a checkpoint of an earlier version
    (True, False): "of compiled kernels and this process runs PyTorch alone",
    (False, True): "of PyTorch alone and this process runs compiled kernels",
}


@pytest.mark.parametrize(("had", "has"), RESUMED)
def test_a_resumed_run_says_that_its_last_digits_will_differ(
    had: bool | None, has: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(library, "unavailable", {} if had else {"min_gated": "false failed"})
    state = Checkpoints().state_dict()
    if had is None:
        del state["has_kernels"]
    monkeypatch.setattr(library, "unavailable", {} if has else {"min_gated": "false failed"})
    resumed, trainer = Checkpoints(), SimpleNamespace(accumulate_grad_batches=100)
    resumed.load_state_dict(state)
    for index in range(2):
        resumed.on_train_batch_end(trainer, None, None, None, index)  # type: ignore[arg-type]
    said = RESUMED[had, has]
    assert [message for message in caplog.messages if "last digits" in message] == (
        [f"The checkpoint is {said}: last digits will differ"] if said else []
    )


@needs_compiler
@pytest.mark.attacks(sampled=0, whole=6)
def test_a_run_that_resumes_without_a_compiler_says_so(attack: Attack, tmp_path: Path) -> None:
    cell = ("min_gru", "min_lstm", "mamba", "gla", "lru", "rnn")[attack.number]
    words = (*SMALL_COPY, f"model={cell}", "callbacks.checkpoints.every=4", "hydra.run.dir=run")
    started = forks.run(*words, "trainer.max_steps=4", directory=tmp_path, limit=60)
    assert started.status == 0, started

    def resume() -> None:
        os.environ |= {"CXX": "false", "GYRAL_CACHE": str(tmp_path / "cache")}
        forget_kernels()
        sys.argv = ["gyral/train.py", "resume=run", "trainer.max_steps=8"]
        ENTRIES["train"]()

    resumed = forks.fork(resume, tmp_path, limit=60)
    assert resumed.status == 0, resumed
    assert "The checkpoint is of compiled kernels" in resumed.err, resumed
    assert resumed.err.count("last digits will differ") == 1, resumed
    attack.record("said")


@needs_compiler
def test_outputs_do_not_depend_on_the_compiler(compiled: dict[str, Observed], uncompiled: dict[str, Observed]) -> None:
    for cell, found in uncompiled.items():
        torch.testing.assert_close(found.outputs, compiled[cell].outputs, rtol=1e-10, atol=1e-10)
        assert found.backend == "reference" or compiled[cell].backend == "fused"


@pytest.mark.slow
def test_torch_compile_refuses_a_compiler_that_fails_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path))
    ended = forks.spawn(*SMALL_COPY, "model=rum", "model.backend=compile", directory=tmp_path)
    assert ended.status == 1, ended
    assert ended.error.startswith("backend=compile: "), ended
    assert ended.error.endswith("; allowed here: auto, reference, fused, graph"), ended
