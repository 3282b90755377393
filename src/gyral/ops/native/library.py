"""C++ that is compiled on first use, for the processor at hand, and kept for all later runs; and how it is called."""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.kernels import KernelUnavailableError

log = logging.getLogger(__name__)

# -march=native: the library is for this processor alone. No -ffast-math: NaN and infinity keep their meaning.
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-shared", "-fPIC")
SOURCES = Path(__file__).parents[1]  # headers are included by their path in this folder
WIDE_VECTORS = ("-mprefer-vector-width=512",)  # GCC and Clang on x86 use half of AVX-512's width without it


def compiler() -> str | None:
    """Return the path of the C++ compiler, if there is one: $CXX, else c++, g++ or clang++."""
    return next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "c++", "g++", "clang++"))), None)


def load(source: Path) -> ctypes.CDLL:
    """Return the library made of one C++ source, compiled unless that was done before.

    Libraries are kept in $GYRAL_CACHE, else $XDG_CACHE_HOME/gyral, else ~/.cache/gyral, by a name that depends on the
    source, the headers beside it, the compiler, the flags and the processor, so that machines may share the folder.

    Raises:
        KernelUnavailableError: no compiler; or it fails, and why. A process tries once.
    """
    outcome = attempt(source)
    if isinstance(outcome, str):
        raise KernelUnavailableError(outcome)
    return outcome


@functools.cache
def attempt(source: Path) -> ctypes.CDLL | str:
    """Return what `load` returns, or why it cannot: a failure is remembered, too, lest every forward pass compile."""
    try:
        return _load(source)
    except KernelUnavailableError as error:
        return str(error)


def _load(source: Path) -> ctypes.CDLL:
    command = compiler()
    if command is None:
        raise KernelUnavailableError("there is no C++ compiler (c++, g++ or clang++; $CXX names another)")
    flags = FLAGS + (WIDE_VECTORS if platform.machine() in ("x86_64", "AMD64") else ())
    headers = sorted(SOURCES.rglob("*.hpp"))
    key = [*(path.read_text() for path in (source, *headers)), *flags, _run([command, "--version"]), _processor()]
    name = f"{source.stem}-{hashlib.sha256(chr(0).join(key).encode()).hexdigest()[:16]}.so"
    path = _cache() / name
    if not path.exists():
        log.info("compiling %s, once; this takes some seconds", source.name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                made = Path(folder) / name
                _run([command, *flags, f"-I{SOURCES}", str(source), "-o", str(made)])
                os.replace(made, path)  # whole or not at all, also when two processes compile at once
        except OSError as error:
            raise KernelUnavailableError(f"{path.parent}: {error.strerror}") from error
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelUnavailableError(f"{path} does not load: {error}") from error


def _cache() -> Path:
    own = os.environ.get("GYRAL_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gyral"


def _run(command: list[str]) -> str:
    """Return what a command prints."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except subprocess.CalledProcessError as error:
        reason = next((line for line in error.stderr.splitlines() if "error" in line), f"status {error.returncode}")
        raise KernelUnavailableError(f"{command[0]} failed: {reason}") from error


def _processor() -> str:
    """Return what decides which instructions there are."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    told = [line for line in lines if line.startswith(("flags", "Features"))]
    return told[0] if told else platform.processor() + platform.machine()


class Recurrence:
    """The recurrence of a source <name>.cpp, which runs rows of a batch through all steps, forward or backward.

    It has the functions <name>_arguments_size(), <name>_block() (how many rows go together),
    <name>_workspace(arguments, is_double) and <name>_run(arguments, is_double, backward), called with a structure
    `Arguments`.

    Args:
        source: the file.
        integers, reals, pointers: names of the structure's fields in their order, `threads` and `workspace` among them.
    """

    def __init__(
        self, source: Path, integers: tuple[str, ...], reals: tuple[str, ...], pointers: tuple[str, ...]
    ) -> None:
        self.source = source
        kinds = ((integers, ctypes.c_int64), (reals, ctypes.c_double), (pointers, ctypes.c_void_p))
        fields = [(name, kind) for names, kind in kinds for name in names]
        self.arguments: type[ctypes.Structure] = type("Arguments", (ctypes.Structure,), {"_fields_": fields})

    def function(self, name: str) -> Any:
        """Return the library's function <name of the source>_<name>, from integers to an integer.

        Raises:
            KernelUnavailableError: the library cannot be compiled or loaded here.
        """
        found = getattr(load(self.source), f"{self.source.stem}_{name}")
        found.restype = ctypes.c_int64
        return found

    def prepare(self) -> None:
        """Compile the library unless that was done before.

        Raises:
            KernelUnavailableError: it cannot be compiled or loaded here.
        """
        same = self.function("arguments_size")() == ctypes.sizeof(self.arguments)
        assert same, f"{self.source} and its caller differ in their fields"

    def blocks(self, rows: int) -> int:
        """Return the number of blocks of rows, which go through a step together, that so many rows make."""
        return -(-rows // int(self.function("block")()))

    def run(
        self,
        backward: bool,
        rows: int,
        like: Tensor,
        numbers: Mapping[str, float],
        tensors: Mapping[str, Tensor | None],
    ) -> None:
        """Run it on so many rows, on torch's number of threads, with fields by their names.

        The tensors, those of numbers in the type of `like`, must be contiguous. An absent one is a null pointer.
        """
        arguments = self.fill(rows, numbers, tensors)
        is_double = ctypes.c_int64(like.dtype == torch.float64)
        workspace = like.new_empty(self.function("workspace")(ctypes.byref(arguments), is_double))
        arguments.workspace = workspace.data_ptr()
        self.function("run")(ctypes.byref(arguments), is_double, ctypes.c_int64(backward))

    def fill(self, rows: int, numbers: Mapping[str, float], tensors: Mapping[str, Tensor | None]) -> ctypes.Structure:
        """Return `Arguments` for so many rows; they hold addresses of the tensors, which must outlive them."""
        arguments = self.arguments(**numbers, threads=min(torch.get_num_threads(), self.blocks(rows)))
        for name, tensor in tensors.items():
            assert tensor is None or tensor.is_contiguous(), name
            setattr(arguments, name, None if tensor is None else tensor.data_ptr())
        return arguments
