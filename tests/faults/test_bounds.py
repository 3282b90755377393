"""Small files that unpack to, or declare, much more than they have: each is refused in one line, before memory is used.

A process that reads one of them may use 256 MiB more than before; the files are of 1 KiB to some MiB. The bounds are
lower than those of Gyral, so that the test is fast.
"""

import gzip
import hashlib
import io
import json
import os
import random
import resource
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gyral.core import inputs
from gyral.core.errors import UserError, one_line
from gyral.core.inputs import read_bytes
from gyral.data import download
from gyral.data.catalogue import PublishedCorpus, PublishedFile
from gyral.data.corpus_cache import checksum, read_corpus
from gyral.data.preparation import DamagedPartError, read_part
from gyral.data.sequences.files import open_columns
from gyral.training.checkpoints import add_checksum, load_checkpoint
from tests.faults import forks
from tests.faults.hostile import Reduced
from tests.helpers.attacks import Attack

ALLOWED = 2**28  # bytes of memory
BOUND = 2**26  # bytes that a small file may unpack to
HUGE = (10**12, 2**33, 2**40)  # values that a header declares
CONTENT = b"published text " * 100
FILE = PublishedFile("text.txt", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
Make = Callable[[Path, int], object]


def header(count: int, kind: str = "<f8", shape: tuple[int, ...] | None = None) -> bytes:
    """Return the header of an array of NumPy."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape or (count,)})
    return file.getvalue()


def zipped(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def tarred(path: Path, name: str, size: int, content: bytes) -> None:
    """Write a .tgz with a member that declares a size and has another content."""
    info = tarfile.TarInfo(name)
    info.size = size
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(info.tobuf() + content)


def zeros(size: int) -> bytes:
    """Return a gzip file that unpacks to many zeros: members one after another."""
    return gzip.compress(bytes(2**24), 9, mtime=0) * (size >> 24)


def declare_in_zip(path: Path, size: int) -> None:
    """Let the first member of a ZIP archive declare another size, in its own header and in the directory."""
    content = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 18), (b"PK\x01\x02", 20)):
        start = content.index(mark)
        content[start + place : start + place + 8] = struct.pack("<II", *[min(size, 2**32 - 2)] * 2)
    path.write_bytes(content)


# Files of arrays for task=sequences.
def npz(path: Path, count: int) -> None:
    zipped(path, {"inputs.npy": header(count) + bytes(64), "targets.npy": header(8) + bytes(64)})


def npz_of_two(path: Path, count: int) -> None:
    zipped(path, {"inputs.npy": header(0, shape=(count, 3)) + bytes(64)}, zipfile.ZIP_STORED)


def npz_of_text(path: Path, count: int) -> None:
    zipped(path, {"inputs.npy": header(3, f"<U{min(count, 2**29 - 1)}") + bytes(64)})


def npz_of_zeros(path: Path, count: int) -> None:
    zipped(path, {"inputs.npy": header(2**25) + bytes(2**28)})


def npz_with_a_size(path: Path, count: int) -> None:
    npz(path, count)
    declare_in_zip(path, count)


def parquet_of_one_value(path: Path, count: int) -> None:
    """A column that repeats one value, which takes a few bytes."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = 2**20
    with parquet.ParquetWriter(path, pyarrow.schema([("inputs", "int64")])) as writer:
        for _ in range(20):
            writer.write_table(pyarrow.table({"inputs": np.zeros(rows, np.int64)}))


def parquet_with_rows(path: Path, count: int) -> None:
    """A file whose metadata declare another number of rows."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"inputs": pyarrow.array([1, 2, 3], "int64")})
    parquet.write_table(table, path, compression=None, use_dictionary=False)
    content = path.read_bytes()
    size = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - size : -8]
    # the number of rows is the third field of the metadata, a zigzag number: 3 is 6
    place = footer.rindex(b"\x16\x06\x19")
    changed = footer[: place + 1] + varint(2 * min(count, 2**62)) + footer[place + 2 :]
    path.write_bytes(content[: -8 - size] + changed + len(changed).to_bytes(4, "little") + b"PAR1")


def varint(number: int) -> bytes:
    digits = []
    while number > 127:
        digits.append(number % 128 + 128)
        number //= 128
    return bytes([*digits, number])


def packed_csv(path: Path, count: int) -> None:
    path.write_bytes(gzip.compress(b"inputs,targets\n") + zeros(2**29))


ARRAYS: dict[str, Make] = {
    "numbers.npz": npz,
    "two.npz": npz_of_two,
    "text.npz": npz_of_text,
    "zeros.npz": npz_of_zeros,
    "size.npz": npz_with_a_size,
    "one_value.parquet": parquet_of_one_value,
    "rows.parquet": parquet_with_rows,
    "packed.csv.gz": packed_csv,
    "packed.jsonl.gz": packed_csv,
}


# Checkpoints.
def save(path: Path, content: Any) -> None:
    torch.save({"state_dict": {}, "global_step": 0, "loops": {}, "evil": content}, path)


def checkpoint_of_bytes(path: Path, count: int) -> None:
    save(path, Reduced(bytearray, count))


def checkpoint_of_storage(path: Path, count: int) -> None:
    save(path, torch.zeros(4))
    declare_in_zip(path, count)


def packed_checkpoint(path: Path, count: int) -> None:
    save(path, torch.zeros(2**24))
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    zipped(path, members)


def checkpoint_of_shared_bytes(path: Path, count: int) -> None:
    """A checkpoint whose directory names the same bytes many times."""
    save(path, torch.zeros(2**18))
    content = path.read_bytes()
    end = content.rindex(b"PK\x05\x06")
    start = content.index(b"PK\x01\x02")
    directory = content[start:end]
    number = min(content.count(b"PK\x01\x02") * 2000, 65_000)
    records = directory * 2000
    tail = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, number, number, len(records), start, 0)
    path.write_bytes(content[:start] + records + tail)


CHECKPOINTS: dict[str, Make] = {
    "bytes.ckpt": checkpoint_of_bytes,
    "storage.ckpt": checkpoint_of_storage,
    "packed.ckpt": packed_checkpoint,
    "shared.ckpt": checkpoint_of_shared_bytes,
}


# Archives that `gyral fetch` downloads.
def zip_of_zeros(path: Path, count: int) -> None:
    zipped(path, {"a/text.txt": bytes(2**26)})


def zip_with_a_size(path: Path, count: int) -> None:
    zipped(path, {"a/text.txt": CONTENT})
    declare_in_zip(path, count)


def tgz_of_zeros(path: Path, count: int) -> None:
    tarred(path, "a/text.txt", 2**26, bytes(2**26))


def tgz_with_a_size(path: Path, count: int) -> None:
    tarred(path, "a/text.txt", count, CONTENT)


def tgz_after_zeros(path: Path, count: int) -> None:
    """The member follows another one, which unpacks to more than an archive may."""
    info = tarfile.TarInfo("zeros")
    info.size = 2**29
    path.write_bytes(gzip.compress(info.tobuf()) + zeros(info.size))


def long_file(path: Path, count: int) -> None:
    path.write_bytes(CONTENT * 20)


ARCHIVES: dict[str, Make] = {
    "zeros.zip": zip_of_zeros,
    "size.zip": zip_with_a_size,
    "zeros.tgz": tgz_of_zeros,
    "size.tgz": tgz_with_a_size,
    "after.tgz": tgz_after_zeros,
    "text.txt": long_file,
}


def fetch(path: Path) -> None:
    download.fetch("small", path.parent, {"small": PublishedCorpus((FILE,), (path.as_uri(),), "free")})


def read_arrays(path: Path) -> None:
    open_columns(path).read("inputs")


def pickled(path: Path, count: int) -> None:
    place = struct.pack("<I", min(count, 2**32 - 1) // 40)
    path.write_bytes(b"\x80\x02]r" + place + b".")


def read_pickle(path: Path) -> None:
    from gyral.applications.probes.data.pairs import _Plain

    assert _Plain(io.BytesIO(path.read_bytes())).load() == []
    raise UserError(f"{path}: is read, with little memory")


def prepared_elsewhere(path: Path, count: int) -> None:
    path.mkdir()
    saved = {"about": {}, "checksums": {"/dev/zero": count}}
    (path / "corpus.json").write_text(json.dumps({**saved, "checksum": checksum(saved)}))


def read_prepared(path: Path) -> None:
    assert read_corpus(path, lambda prepared: prepared) is None
    raise UserError(f"{path}: is prepared again")


def read_a_part(path: Path) -> None:
    with pytest.raises(DamagedPartError) as error:
        read_part(path)
    raise UserError(str(error.value))


CASES: list[tuple[str, Make, Callable[[Path], object], int]] = [
    (name, make, read, count)
    for kind, read in (
        (ARRAYS, read_arrays),
        (CHECKPOINTS, load_checkpoint),
        ({f"{name}.ckpt": make for name, make in CHECKPOINTS.items()}, load_checkpoint),
        (ARCHIVES, fetch),
        ({f"part_{name}": make for name, make in ARRAYS.items() if name.endswith(".npz")}, read_a_part),
        ({"template.pickle": pickled}, read_pickle),
        ({"corpus": prepared_elsewhere}, read_prepared),
        ({"text.txt.gz": packed_csv}, lambda path: read_bytes("path", path)),
    )
    for name, make in kind.items()
    for count in (HUGE if "zeros" not in name and "packed" not in name else HUGE[:1])
]
random.Random(int(os.environ.get("SEED", "0"))).shuffle(CASES)


@pytest.mark.attacks(sampled=4, whole=len(CASES))
def test_no_file_uses_more_memory_than_it_may(attack: Attack, tmp_path: Path) -> None:
    name, make, read, count = CASES[attack.number]
    path = tmp_path / name
    make(path, count)
    if name.count(".ckpt") == 2:
        add_checksum(path)
    size = path.stat().st_size

    def call() -> None:
        inputs.ANY_FILE = download.LARGEST = BOUND
        used = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (used + 3 * ALLOWED, used + 3 * ALLOWED))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            read(path)
        except UserError as error:
            print(one_line(error))
        else:
            print("was read")
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

    ended = forks.fork(call, tmp_path, limit=20)
    where = f"{name} ({size:,} bytes), {count:,}: {ended}"
    assert ended.status == 0, where
    *_, message, memory = ended.out.splitlines()
    assert int(memory) << 10 < ALLOWED, where
    assert name.partition(".")[0] in message or "small" in message or name == "size.zip", where
    assert "was read" not in message or name == "size.zip", where  # it has what was published, and no more is read
    left = sum(each.stat().st_size for each in tmp_path.rglob("*") if each.is_file() and each != path)
    assert left <= max(size, 2**20), where  # nothing is unpacked to the disk
    attack.record("refused")


def test_honest_files_are_far_from_the_bounds(tmp_path: Path) -> None:
    """A text that repeats itself, an array of zeros and a column of one value are read."""
    pytest.importorskip("pyarrow")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"again and again\n" * 10**5))
    assert len(read_bytes("path", tmp_path / "a.txt.gz")) == 16 * 10**5
    np.savez_compressed(tmp_path / "a.npz", inputs=np.zeros((10**5, 3)))
    assert open_columns(tmp_path / "a.npz").read("inputs").values.shape == (3 * 10**5,)
    assert inputs.most_bytes(10) == inputs.ANY_FILE
    assert inputs.most_bytes(2**40) == inputs.RATIO * 2**40
