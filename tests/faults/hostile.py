"""Files of a run directory by which somebody else tries to run code on this machine, or to write to it.

Each attack tries to make the file CANARY in the working directory, to import the module `canary`, which makes it, or to
change the file precious.txt.
"""

import io
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

CANARY = "CANARY"
PRECIOUS = "precious.txt"  # a file of the user
TOUCH = f"open('{CANARY}', 'w').close()"
COMMAND = f"touch {CANARY}"
MODULE = f"{TOUCH}\nimport torch\nclass Cell(torch.nn.GRUCell): pass\ndef make(*_, **__): pass\n"
MODEL, CELL, TASK, CORPUS = "model", "model.cell", "task", "task.corpus"
OPTIMIZER, SCHEDULER, TRAINER = "optimizer", "scheduler", "trainer"
CALLBACK, LOGGER = "callbacks.guard", "logger.wandb"
Attack = Callable[[Path], None]


def target(key: str, name: Any, /, **options: Any) -> Attack:
    """Return an attack whose configuration names a class or function in a section."""

    def change(config: Any) -> None:
        OmegaConf.update(config, key, {"_target_": name, **options}, merge=False, force_add=True)

    return lambda directory: edit(directory, change)


def option(key: str, value: Any) -> Attack:
    """Return an attack whose configuration has an option."""
    return lambda directory: edit(directory, lambda config: OmegaConf.update(config, key, value, force_add=True))


def link(name: str) -> Attack:
    """Return an attack in which a file that a run writes is a link to a file of the user."""

    def make(directory: Path) -> None:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(directory.parent.resolve() / PRECIOUS)

    return make


def edit(directory: Path, change: Callable[[Any], None]) -> None:
    """Change the configuration of a run directory."""
    path = directory / "config.yaml"
    config = OmegaConf.create(path.read_text())
    change(config)
    path.write_text(OmegaConf.to_yaml(config))


def text(name: str, content: str, end: bool = True) -> Attack:
    """Return an attack that adds text to a file of the run directory, or replaces the file by it."""

    def write(directory: Path) -> None:
        path = directory / name
        path.write_text((path.read_text() if end and path.is_file() else "") + content)

    return write


class Reduced:
    """An object whose pickle calls a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.called = (function, arguments)

    def __reduce__(self) -> Any:
        return self.called


def checkpoint(name: str, hostile: Callable[[], Any], write: Callable[[Any, Path], None] = torch.save) -> Attack:
    """Return an attack whose checkpoint has a hostile object among its contents."""

    def make(directory: Path) -> None:
        (directory / "checkpoints").mkdir(exist_ok=True)
        content = {"state_dict": {}, "global_step": 2, "loops": {}, "callbacks": {"Examples": hostile()}}
        write(content, directory / "checkpoints" / name)

    return make


def write_pickle(content: Any, path: Path) -> None:
    path.write_bytes(pickle.dumps(content))


def write_old_archive(content: Any, path: Path) -> None:
    """Write a checkpoint in the format of torch 0.1, a tar archive of pickles."""
    with tarfile.open(path, "w") as archive:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            member = tarfile.TarInfo(name)
            member.size = len(pickle.dumps(content))
            archive.addfile(member, io.BytesIO(pickle.dumps(content)))


def write_archive(content: Any, path: Path) -> None:
    """Write a checkpoint as torch does, with a pickle that torch did not make."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content, protocol=2))
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")


def write_without_zip(content: Any, path: Path) -> None:
    torch.save(content, path, _use_new_zipfile_serialization=False)


def write_script(content: Any, path: Path) -> None:
    """Write a program of TorchScript instead of a checkpoint."""
    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2)), str(path))


def system() -> Any:
    import os

    return Reduced(os.system, COMMAND)


def evaluated() -> Any:
    return Reduced(exec, TOUCH)


def imported() -> Any:
    return Reduced(__import__, "canary")


def loaded_again() -> Any:
    """Return an object whose pickle loads another pickle, without a limit to what it may name."""
    return Reduced(torch.storage._load_from_bytes, pickle.dumps(evaluated()))


EXTERNAL = {"_target_": "gyral.cells.external.ExternalCell", "_partial_": True, "hidden_size": 8}
LOOP = "bomb: &a [x]\n" + "".join(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}' if n else '*a'] * 9)}]\n" for n in range(30))

ATTACKS: dict[str, Attack] = {
    # functions of Python, in every role
    "os.system as a model": target(MODEL, "os.system", command=COMMAND),
    "subprocess.call as a cell": target(CELL, "subprocess.call", args=["touch", CANARY]),
    "subprocess.Popen as a task": target(TASK, "subprocess.Popen", args=["touch", CANARY]),
    "exec as a corpus": target(CORPUS, "builtins.exec", _args_=[TOUCH]),
    "eval as an optimizer": target(OPTIMIZER, "builtins.eval", _args_=[TOUCH]),
    "open as a schedule": target(SCHEDULER, "builtins.open", file=CANARY, mode="w"),
    "shutil.copy as a trainer": target(TRAINER, "shutil.copy", src="/etc/hostname", dst=CANARY),
    "pathlib as a callback": target(CALLBACK, "pathlib.Path.touch", _args_=[CANARY]),
    "logging.FileHandler as a logger": target(LOGGER, "logging.FileHandler", filename=CANARY),
    "runpy as a callback": target(CALLBACK, "runpy.run_path", path_name="canary.py"),
    "timeit as a callback": target(CALLBACK, "timeit.timeit", stmt=TOUCH, number=1),
    "asyncio as a callback": target(
        CALLBACK, "asyncio.run", main={"_target_": "asyncio.create_subprocess_shell", "cmd": COMMAND}
    ),
    "zipfile as a corpus": target(CORPUS, "zipfile.ZipFile", file=CANARY, mode="w"),
    "sqlite3 as a corpus": target(CORPUS, "sqlite3.connect", database=CANARY),
    "shelve as a corpus": target(CORPUS, "shelve.open", filename=CANARY),
    "pickle as a corpus": target(CORPUS, "pickle.loads", data="c__builtin__\neval\n."),
    "dictConfig as a logger": target(
        LOGGER, "logging.config.dictConfig", config={"handlers": {"a": {"()": "canary.make"}}, "version": 1}
    ),
    "functools.partial as a cell": target(CELL, "functools.partial", _args_=["os.system", COMMAND]),
    "operator.methodcaller as a cell": target(CELL, "operator.methodcaller", name="system"),
    "importlib as a task": target(TASK, "importlib.import_module", name="canary"),
    "webbrowser as a callback": target(CALLBACK, "webbrowser.open", url="file:///"),
    "os.execvp as an optimizer": target(OPTIMIZER, "os.execvp", file="touch", args=["touch", CANARY]),
    "pty as an optimizer": target(OPTIMIZER, "pty.spawn", argv=["touch", CANARY]),
    # functions of other packages
    "torch.hub as a model": target(MODEL, "torch.hub.load", repo_or_dir=".", model="make", source="local"),
    "torch.load as a corpus": target(CORPUS, "torch.load", f="canary.pt", weights_only=False),
    "torch.save as a callback": target(CALLBACK, "torch.save", obj={}, f=CANARY),
    "torch.jit.load as a model": target(MODEL, "torch.jit.load", f="canary.pt"),
    "inline C++ as a cell": target(CELL, "torch.utils.cpp_extension.load_inline", name="a", cpp_sources=""),
    "numpy.load as a corpus": target(CORPUS, "numpy.load", file="canary.npy", allow_pickle=True),
    "numpy.savetxt as a corpus": target(CORPUS, "numpy.savetxt", fname=CANARY, X=[1]),
    "yaml as a corpus": target(CORPUS, "yaml.unsafe_load", stream=f"!!python/object/apply:os.system ['{COMMAND}']"),
    "joblib as a corpus": target(CORPUS, "joblib.load", filename="canary.pt"),
    "hydra.utils.call as a task": target(TASK, "hydra.utils.call", config={"_target_": "os.system"}),
    "hydra.utils.get_method as a cell": target(CELL, "hydra.utils.get_method", path="os.system"),
    "Lightning's callback": target(CALLBACK, "pytorch_lightning.callbacks.LambdaCallback"),
    "Lightning's checkpoints": target(CALLBACK, "pytorch_lightning.callbacks.ModelCheckpoint", dirpath=CANARY),
    "Lightning's logger": target(LOGGER, "pytorch_lightning.loggers.CSVLogger", save_dir=CANARY),
    "a schedule of a function": target(
        SCHEDULER, "torch.optim.lr_scheduler.LambdaLR", lr_lambda={"_target_": "builtins.eval", "_args_": [TOUCH]}
    ),
    "what a module of torch has imported": target(SCHEDULER, "torch.optim.lr_scheduler.warnings.sys.exit"),
    "a type that torch.optim has imported": target(SCHEDULER, "torch.optim.lr_scheduler.Counter"),
    "a function of torch.optim": target(OPTIMIZER, "torch.optim._functional.math.exp"),
    # functions of this project, and walks through what its modules have imported
    "private writing": target(CORPUS, "gyral.core.files.write_atomically", path=CANARY, text="x"),
    "writing": target(CALLBACK, "gyral.core.files.replace_when_written", path=CANARY, write="builtins.print"),
    "a walk to os": target(TASK, "gyral.tasks.base.os.system", command=COMMAND),
    "a walk from a cell": target(CELL, "gyral.cells.rum.torch.hub.os.system", command=COMMAND),
    "a walk from a callback": target(CALLBACK, "gyral.training.callbacks.checkpoints.Path.touch", _args_=[CANARY]),
    "a walk from a logger": target(LOGGER, "gyral.training.loggers.os.system", command=COMMAND),
    "a walk through a class": target(CELL, "gyral.cells.rum.RUMCell.__init__.__globals__"),
    "a plugin": target(CALLBACK, "hydra_plugins.gyral.Grid"),
    "a function of a command": target(TASK, "gyral.train.main"),
    "loading of another run": target(MODEL, "gyral.training.build.load", directory="other"),
    "the process itself": target(CALLBACK, "gyral.config.command_line.fail", message=COMMAND),
    "an imported class": target(CELL, "gyral.cells.external.RecurrentCell"),
    "a file that is fetched": target(CORPUS, "gyral.data.download.download", url="file:///", path=CANARY),
    # in the wrong place
    "a callback as a corpus": target(CORPUS, "gyral.training.callbacks.checkpoints.Checkpoints"),
    "a corpus as a callback": target(CALLBACK, "gyral.data.text.corpora.load_file", path="/etc/passwd"),
    "a trainer inside of a task": option("task.helper", {"_target_": "pytorch_lightning.Trainer"}),
    "in a list": option("trainer.plugins", [{"_target_": "os.system", "command": COMMAND}]),
    "in positional arguments": option("model.cell._args_", [{"_target_": "os.system", "command": COMMAND}]),
    "in a section that is not read": option("paper", {"_target_": "os.system", "command": COMMAND}),
    "in a new section": option("extra", {"deep": [{"_target_": "canary.make"}]}),
    "at the root": option("_target_", "canary.make"),
    "deep inside of a cell": option("model.cell.a.b.c", {"_target_": "canary.make"}),
    # modules beside the run
    "a module as a model": target(MODEL, "canary.Cell"),
    "a module as a cell": target(CELL, "canary.Cell"),
    "a module as an external cell": option(CELL, {**EXTERNAL, "cell": "canary.Cell"}),
    "a function as an external cell": option(CELL, {**EXTERNAL, "cell": "os.system"}),
    "an external cell in a network": option("model.cell.fast", {**EXTERNAL, "cell": "canary.Cell"}),
    "a list as a name": target(CELL, ["os.system"]),
    "a section as a name": target(CELL, {"_target_": "os.system", "command": COMMAND}),
    # interpolations
    "a reference to the environment": option("logger.wandb", {"_target_": "x", "notes": "${oc.env:HOME}"}),
    "a reference as a name": target(CELL, "${oc.env:HOSTILE}"),
    "a reference to a resolver": option("task.data_seed", "${run_directory:null,x}"),
    "a reference that decodes": option("task.data_seed", "${oc.decode:'{_target_: os.system}'}"),
    # YAML
    "a tag that calls": text("config.yaml", f"evil: !!python/object/apply:os.system ['{COMMAND}']\n"),
    "a tag that makes": text("config.yaml", f"evil: !!python/object/new:os.system ['{COMMAND}']\n"),
    "a tag that imports": text("config.yaml", "evil: !!python/module:canary\n"),
    "a tag that names": text("config.yaml", "evil: !!python/name:canary.make\n"),
    "a tag of nobody": text("config.yaml", "evil: !canary {a: 1}\n"),
    "a tag in the overrides": text("overrides.yaml", f"- !!python/object/apply:os.system ['{COMMAND}']\n"),
    "billions of values": text("config.yaml", LOOP),
    "a value in itself": text("config.yaml", "evil: &a [*a]\n"),
    "very deep": text("config.yaml", "evil: " + "[" * 20000 + "]" * 20000 + "\n"),
    "very deep provenance": text("provenance.json", "[" * 200000, end=False),
    # links
    "a log in a file of the user": link("train.log"),
    "a failure in a file of the user": link("FAILED"),
    "examples in a file of the user": link("examples.txt"),
    "a figure in a file of the user": link("figures/loss_line.png"),
    "a lock in a file of the user": link(".lock"),
    # checkpoints
    "a pickle in the last": checkpoint("last.ckpt", system),
    "a pickle in the best": checkpoint("best.ckpt", system),
    "a pickle that evaluates": checkpoint("best.ckpt", evaluated),
    "a pickle that imports": checkpoint("best.ckpt", imported),
    "a pickle in a pickle": checkpoint("best.ckpt", loaded_again),
    "a pickle alone": checkpoint("best.ckpt", evaluated, write_pickle),
    "an archive that torch did not write": checkpoint("best.ckpt", evaluated, write_archive),
    "a pickle of the old format": checkpoint("best.ckpt", evaluated, write_without_zip),
    "a pickle of the oldest format": checkpoint("best.ckpt", evaluated, write_old_archive),
    "a program": checkpoint("best.ckpt", dict, write_script),
}
