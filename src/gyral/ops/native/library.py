"""Compilation of C++ kernels on first use for the processor of this machine, and calls to them.

Without a compiler, the libraries that a wheel carries serve; `gyral.ops.native.build` makes them.
"""

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import re
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.core.cache import cache_directory, untrusted_reason
from gyral.core.commands import find_program
from gyral.core.locks import lock_file
from gyral.core.progress import line
from gyral.ops.operator import KernelUnavailableError

log = logging.getLogger(__name__)

DTYPES: tuple[torch.dtype, ...] = (torch.float32, torch.float64)  # of all kernels for the CPU

# -march=native: the library runs only on this processor. No -ffast-math: NaN and infinity keep their meaning.
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-shared", "-fPIC")
SOURCES = Path(__file__).parents[1]  # includes name headers by their path in this folder
WIDE_VECTORS = ("-mprefer-vector-width=512",)  # by default GCC and Clang on x86 use half of AVX-512's width
# For some processors, Zen 2 and 3 among them, GCC fuses multiplication and addition in some instances of a loop and not
# in others. Results would then depend on how many rows a thread has, so on the number of threads.
ALWAYS_FUSED = ("--param=avoid-fma-max-bits=0",)
# Levels of x86-64, the best first, with the features of /proc/cpuinfo by which a processor has them.
LEVELS = {
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "x86-64-v3": ("avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"),
}
INCLUDE = re.compile(r'^#include "(.+)"', re.MULTILINE)
PREBUILT = Path(__file__).with_name("prebuilt")
KINDS = {"Index": ctypes.c_int64, "double": ctypes.c_double, "void*": ctypes.c_void_p}  # of arguments
FORMATS = {ctypes.c_int64: "q", ctypes.c_double: "d", ctypes.c_void_p: "P"}  # of the module struct
MAX_SIZE = 2**28  # bytes of a library
LOCK = "compiling.lock"  # in the cache directory; the process that holds it compiles
FOLDER = "compiling-"  # how the name of the folder begins in which a library is compiled
ABANDONED = 3600.0  # seconds after which such a folder is that of a compilation that was killed
unavailable: dict[str, str] = {}  # the reasons why libraries that this process has needed do not exist, by their names


def compiler() -> str | None:
    """Return the path of the C++ compiler: $CXX, else c++, g++ or clang++; None if none is installed."""
    return next(filter(None, map(find_program, (os.environ.get("CXX", ""), "c++", "g++", "clang++"))), None)


def load(source: Path) -> ctypes.CDLL:
    """Return the library of one C++ source, compiled on first use.

    Libraries are stored in `gyral.core.cache.cache_directory`. Their file name depends on the source, the headers that
    it includes, the compiler, the flags and the processor, so that machines may share the directory. A library that
    another user could have written is not loaded, see `gyral.core.cache.untrusted_reason`. This process then compiles
    its own, and so it does if the directory cannot be made or written.

    Raises:
        KernelUnavailableError: There is no compiler, or the compilation failed; the message is the reason. A failed
            compilation is not repeated.
    """
    outcome = load_or_reason(source)
    if isinstance(outcome, str):
        raise KernelUnavailableError(outcome)
    return outcome


@functools.cache
def load_or_reason(source: Path) -> ctypes.CDLL | str:
    """Return the library, or the reason why it is unavailable: cached, so that a failed compilation is not repeated."""
    unavailable.pop(source.stem, None)
    try:
        return _load(source)
    except KernelUnavailableError as error:
        if SOURCES in source.parents:
            unavailable[source.stem] = str(error)
        return str(error)


@functools.cache
def function(source: Path, name: str) -> Any:
    """Return the function <name of the source>_<name> of the library of a source, which returns an integer.

    Raises:
        KernelUnavailableError: The library cannot be compiled or loaded on this machine.
    """
    found = getattr(load(source), f"{source.stem}_{name}")
    found.restype = ctypes.c_int64
    return found


def _load(source: Path) -> ctypes.CDLL:
    command = compiler()
    if command is None:
        found = find_prebuilt(source)
        if found is None:
            raise KernelUnavailableError("there is no C++ compiler (c++, g++ or clang++; set $CXX to use another one)")
        return _open(found)
    version = _run([command, "--version"])
    flags = _flags(version, "native")
    key = [_texts(source), *flags, version, _processor()]
    name = f"{source.stem}-{hashlib.sha256(chr(0).join(key).encode()).hexdigest()[:16]}.so"
    directory = cache_directory()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = directory / name
        reason = untrusted_reason(path if path.exists() else directory)
        if reason is None:
            if not _is_whole(path):
                _compile([command, *flags], source, path)
            return _open(path)
    except OSError as error:
        reason = f"{error.filename2 or error.filename or directory}: {error.strerror}"
    log.warning("%s; compiling %s for this process alone", reason, source.name)
    try:
        with tempfile.TemporaryDirectory(prefix="gyral-") as private:  # a loaded library no longer needs its file
            if (reason := untrusted_reason(Path(private))) is not None:
                raise KernelUnavailableError(reason)
            _compile([command, *flags], source, Path(private, name))
            return _open(Path(private, name))
    except OSError as error:
        raise KernelUnavailableError(f"{error.filename2 or error.filename}: {error.strerror}") from error


def _flags(version: str, processor: str) -> tuple[str, ...]:
    """Return the flags of the compiler for a processor, "native" or a level of x86-64."""
    flags = tuple(f"-march={processor}" if flag == "-march=native" else flag for flag in FLAGS)
    flags += WIDE_VECTORS if platform.machine() in ("x86_64", "AMD64") else ()
    return flags + (ALWAYS_FUSED if "Free Software Foundation" in version else ())  # GCC


def _texts(source: Path) -> str:
    """Return the texts of a source and of all headers that it includes, directly or through others."""
    texts: dict[Path, str] = {}
    to_read = [source]
    while to_read:
        path = to_read.pop()
        if path not in texts:
            texts[path] = path.read_text(encoding="utf-8")
            for name in INCLUDE.findall(texts[path]):  # as the compiler looks for them
                to_read += [header for header in (path.parent / name, SOURCES / name) if header.is_file()][:1]
    return "\0".join(texts.values())


def prebuilt_path(source: Path, level: str, directory: Path = PREBUILT) -> Path:
    """Return the path of the library of a source for a level of x86-64; it depends on the source and its headers."""
    digest = hashlib.sha256(_texts(source).encode()).hexdigest()[:16]
    return directory / f"{source.stem}-{level}-{digest}.so"


def find_prebuilt(source: Path) -> Path | None:
    """Return the library of a source in this installation for the best level that this processor has, or None."""
    features = set(_processor().split())
    for level, needed in LEVELS.items():
        path = prebuilt_path(source, level)
        if features.issuperset(needed) and path.is_file():
            return path
    return None


def compile_portable(source: Path, level: str, path: Path) -> None:
    """Compile a source for a level of x86-64, without a dependency on the compiler's own version of libstdc++.

    Raises:
        KernelUnavailableError: There is no compiler, or the compilation failed; the message is the reason.
    """
    command = compiler()
    if command is None:
        raise KernelUnavailableError("there is no C++ compiler")
    flags = _flags(_run([command, "--version"]), level)
    _run([command, *flags, "-static-libstdc++", "-static-libgcc", f"-I{SOURCES}", str(source), "-o", str(path)])


def origin() -> str:
    """Return where the kernels of this machine come from: its compiler, or the best level of the prebuilt ones."""
    command = compiler()
    if command is not None:
        names = ", ".join(sorted(unavailable))
        without = f", but not those of {names}: {next(iter(unavailable.values()))}" if names else ""
        return f"compiled by {command}{without}"
    features = set(_processor().split())
    levels = [level for level, needed in LEVELS.items() if features.issuperset(needed)]
    prebuilt = [level for level in levels if any(PREBUILT.glob(f"*-{level}-*.so"))]
    return f"those of the wheel for {prebuilt[0]}" if prebuilt else "unavailable: there is no C++ compiler"


def _open(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelUnavailableError(f"{path} does not load: {error}") from error


def _compile(command: list[str], source: Path, path: Path) -> None:
    """Compile a source unless another process does at the same time, and append the digest to the library.

    The system's loader ignores the digest. The folders of compilations that were killed are removed, an hour later.

    Args:
        command: The compiler and its flags.
        source: The C++ source.
        path: The library, which appears when it is complete.
    """
    with line.describe("compiling"), lock_file(path.parent / LOCK, seconds=None):
        if _is_whole(path):
            return
        log.info("Compiling %s; this takes some seconds", source.name)
        for earlier in path.parent.glob(f"{FOLDER}*"):
            _remove_if_abandoned(earlier)
        with tempfile.TemporaryDirectory(prefix=FOLDER, dir=path.parent) as folder:
            made = Path(folder) / path.name
            _run([*command, f"-I{SOURCES}", str(source), "-o", str(made)])
            if not made.is_file():
                raise KernelUnavailableError(f"{command[0]} failed: it wrote no library")
            with made.open("r+b") as file:
                digest = _digest(file.read(), path.name)
                file.write(digest)
            made.chmod(0o755)  # whatever the user's mask, no other user may write to it
            os.replace(made, path)


def _remove_if_abandoned(folder: Path) -> None:
    """Remove the folder of a compilation that was killed; that of another machine, whose lock is not seen, is new."""
    with contextlib.suppress(OSError):
        if time.time() - folder.stat().st_mtime > ABANDONED:
            shutil.rmtree(folder, ignore_errors=True)


def _is_whole(path: Path) -> bool:
    """Return whether a library exists and ends with its digest. One of an older version, without it, does not."""
    if not path.is_file() or path.stat().st_size > MAX_SIZE:
        return False
    content = path.read_bytes()
    size = hashlib.sha256().digest_size
    return _digest(content[:-size], path.name) == content[-size:]


def _digest(content: bytes, name: str) -> bytes:
    """Return the digest of a library and of its name, so that one library does not pass for another one."""
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


def _run(command: list[str]) -> str:
    """Return the standard output of a command."""
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=True)
        return done.stdout
    except OSError as error:
        raise KernelUnavailableError(f"{command[0]} failed: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        reason = next((line for line in error.stderr.splitlines() if "error" in line), f"status {error.returncode}")
        raise KernelUnavailableError(f"{command[0]} failed: {reason}") from error


def _processor() -> str:
    """Return a description of the processor's instruction set."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    features = [line for line in lines if line.startswith(("flags", "Features"))]
    return features[0] if features else platform.processor() + platform.machine()


class Kernel:
    """A kernel in C++, which runs all steps of a batch, forward or backward.

    `struct Arguments`, in <name>.cpp or in a header beside it, lists the arguments: integers `Index`, real numbers
    `double`, and pointers `void*` to tensors. `batch`, `threads` and `workspace` are among them; the latter two are
    filled in. The source has the functions <name>_arguments_size(), <name>_block() (the number of rows that go through
    a step together), <name>_workspace(arguments, is_double) and <name>_run(arguments, is_double, backward).

    Args:
        source: The path of <name>.cpp.
    """

    def __init__(self, source: Path) -> None:
        self.source = source

    def function(self, name: str) -> Any:
        """Return a function of the library; see the function of this module with the same name."""
        return function(self.source, name)

    def prepare(self, device: torch.device | None = None) -> None:
        """Compile the library on first use; `device`, which `gyral.ops.operator` passes, is the CPU.

        Raises:
            KernelUnavailableError: The library cannot be compiled or loaded on this machine.
        """
        same = function(self.source, "arguments_size")() == ctypes.sizeof(self.Arguments)
        assert same, f"the fields of Arguments in {self.source} and in the compiled library differ"

    @functools.cached_property
    def Arguments(self) -> type[ctypes.Structure]:  # noqa: N802 (a class)
        """The structure, as the source declares it."""
        return type("Arguments", (ctypes.Structure,), {"_fields_": read_fields(self.source)})

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the arguments, in order."""
        return tuple(field[0] for field in self.Arguments._fields_)

    @functools.cached_property
    def block(self) -> int:
        """The number of rows that go through a step together."""
        return int(self.function("block")())

    def blocks(self, rows: int) -> int:
        """Return the number of blocks into which `rows` rows of a batch are divided."""
        return -(-rows // self.block)

    def run(self, backward: bool, dtype: torch.dtype | None = None, **given: Any) -> None:
        """Run all steps of a batch on torch's number of threads; an empty batch has nothing to run.

        Args:
            backward: Whether to run backward.
            dtype: Of all floating tensors, float32 or float64; that of the given ones if None.
            **given: The arguments: numbers and contiguous tensors. A pointer that is None or left out is null.

        Raises:
            TypeError: The source has no such argument, or a number is left out.
        """
        if not given.keys() <= self._allowed:
            unknown, allowed = sorted(given.keys() - self._allowed), ", ".join(sorted(self._allowed))
            raise TypeError(f"{self.source.name} has no argument {', '.join(unknown)}; it has {allowed}")
        if dtype is None:
            doubles = (value for value in given.values() if isinstance(value, Tensor) and value.dtype == torch.float64)
            dtype = torch.float32 if next(doubles, None) is None else torch.float64
        self.call(backward, dtype, given)

    def call(self, backward: bool, dtype: torch.dtype, given: dict[str, Any]) -> None:
        """Do the same as `run`, where `given` may have entries that are not arguments of the kernel."""
        if given["batch"] == 0:
            return
        is_double = dtype == torch.float64
        values = self._values(given)
        size = self._workspace(self._pack(*values), is_double)
        if size:
            workspace = torch.empty(size, dtype=dtype, device="cpu")
            values[self.names.index("workspace")] = workspace.data_ptr()
        self._run(self._pack(*values), is_double, backward)

    def fill(self, given: dict[str, Any]) -> bytes:
        """Return the structure, with the addresses of tensors, which must outlive it.

        Raises:
            TypeError: A number is left out.
        """
        return self._pack(*self._values(given))

    def _values(self, given: dict[str, Any]) -> list[Any]:
        """Return the values of the fields of the structure."""
        given["threads"] = 0
        values = [*map(given.get, self.names)]
        for index in self._pointers:
            value = values[index]
            if value is None:
                values[index] = 0
            elif type(value) is not int:
                values[index] = value.data_ptr()
        if None in values:
            missing = [name for name, value in zip(self.names, values, strict=True) if value is None]
            raise TypeError(f"{self.source.name} needs {', '.join(sorted(missing))}")
        values[self.names.index("threads")] = min(torch.get_num_threads(), self.blocks(given["batch"]))
        return values

    @functools.cached_property
    def _allowed(self) -> frozenset[str]:
        """The names of the arguments that callers give."""
        return frozenset(self.names) - {"threads", "workspace"}

    @functools.cached_property
    def _pointers(self) -> list[int]:
        return [index for index, field in enumerate(self.Arguments._fields_) if field[1] is ctypes.c_void_p]

    @functools.cached_property
    def _pack(self) -> Callable[..., bytes]:
        """A function that makes the structure, in a fifth of the time of ctypes."""
        return struct.Struct("".join(FORMATS[field[1]] for field in self.Arguments._fields_)).pack

    @functools.cached_property
    def _workspace(self) -> Any:
        return self._typed("workspace", ctypes.c_int64)

    @functools.cached_property
    def _run(self) -> Any:
        return self._typed("run", ctypes.c_int64, ctypes.c_int64)

    def _typed(self, name: str, *types: Any) -> Any:
        """Return a function of the arguments of the kernel and of further ones with these types."""
        found = self.function(name)
        found.argtypes = [ctypes.c_char_p, *types]
        return found


def read_fields(source: Path) -> list[tuple[str, Any]]:
    """Return the name and the type of each field of `struct Arguments` in a source or a header beside it.

    Raises:
        TypeError: There is no such structure, or a field has another type.
    """
    texts = [path.read_text(encoding="utf-8") for path in (source, *sorted(source.parent.glob("*.hpp")))]
    found = re.search(r"struct Arguments \{(.*?)\};", re.sub("//.*", "", "".join(texts)), re.DOTALL)
    if found is None:
        raise TypeError(f"{source.name}: there is no struct Arguments")
    fields = []
    for declaration in filter(None, map(str.strip, found[1].split(";"))):
        kind, _, names = declaration.partition(" ")
        if kind not in KINDS:
            raise TypeError(f"{source.name}: {declaration}: the type must be one of {', '.join(KINDS)}")
        fields += [(name.strip(), KINDS[kind]) for name in names.split(",")]
    return fields
