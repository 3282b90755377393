"""What all tests share: one thread, a fixed seed, the golden tensors, Triton's interpreter."""

import gc
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["tests.helpers.attacks", "tests.helpers.sampling"]

ROOT = Path(__file__).resolve().parents[1]

# Collecting tests makes a million objects that stay, and the garbage collector would go through them again and again.
gc.disable()

# A process that compiles every module and test file again takes seconds longer to start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

try:
    import absl.logging
except ModuleNotFoundError:  # `make gpu` has pytest, torch and Triton alone
    pass
else:
    # When a run sets up its logging, this handler closes its stream: pytest's, while the run has a stderr of its own.
    absl.logging.get_absl_handler().python_handler.setStream(sys.__stderr__)


def pytest_collectstart() -> None:
    """Set torch and Triton up before a test file is imported; a process that distributes tests imports no torch."""
    import torch

    torch.set_num_threads(1)  # small tensors: threads cost more than they give, and two test processes would fight
    # before triton is imported anywhere: without a GPU its kernels run in its interpreter
    os.environ["TRITON_INTERPRET"] = "0" if torch.cuda.is_available() else "1"


def pytest_collection_finish() -> None:
    for name, logger in logging.root.manager.loggerDict.items():  # of all modules that the tests import
        # pytest would attach its handlers to these loggers before every test; W&B's logger writes to a file instead
        if isinstance(logger, logging.Logger) and not logger.propagate and not name.startswith("wandb"):
            logger.propagate = True
    gc.freeze()
    gc.set_threshold(50_000, 10, 20)  # by default collecting takes 7 % of the time of all tests
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def compositions() -> Iterator[None]:
    """Have this process, and its forks, compose each selection of configuration files once."""
    try:
        from tests.helpers.composing import each_once
    except ModuleNotFoundError:  # `make gpu` has no Hydra
        yield
    else:
        with each_once():
            yield


@pytest.fixture(autouse=True)
def seed() -> None:
    """Make every test's random numbers and settings its own, whatever ran before it."""
    import torch

    torch.default_generator.manual_seed(0)  # torch.manual_seed formats a traceback for each kind of GPU
    torch.set_flush_denormal(False)  # a run that was built in this process has set it
    os.environ.pop("PYTHONSAFEPATH", None)  # a command that ran in this process has set it
    if "wandb" in sys.modules:  # it reads the environment, and the user's key in it, once
        sys.modules["wandb"].teardown()


@pytest.fixture(scope="session")
def memory_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run whose external memory was recorded, after steps 8, 16 and 24, the last of them the best."""
    from tests.helpers.running import SMALL_ALGORITHM, invoke

    directory = tmp_path_factory.mktemp("runs") / "memory"
    recorded = (*SMALL_ALGORITHM, "model=lantm", "optimizer.lr=0.02", "callbacks=memory_trace")
    outcome = invoke(*recorded, f"hydra.run.dir={directory}")
    assert outcome.status == 0, outcome.err
    return directory


@pytest.fixture(scope="session")
def golden() -> Path:
    """Folder of the reference tensors: $GYRAL_GOLDEN, else shared/golden beside the repository."""
    folder = Path(os.environ.get("GYRAL_GOLDEN", ROOT.parent / "shared" / "golden"))
    if not folder.is_dir():
        pytest.skip(f"no golden tensors at {folder} (set GYRAL_GOLDEN)")
    return folder
