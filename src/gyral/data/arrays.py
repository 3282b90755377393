"""Sizes that files of arrays declare."""

import math
from typing import Any

from numpy.lib import format as npy

from gyral.core.inputs import BoundError, check_members, most_bytes

VALUE = 8  # bytes of a value in memory


def check_arrays(saved: Any, packed: int) -> None:
    """Check that no array of an .npz file declares more bytes than the file has or may unpack to.

    NumPy allocates an array before it reads it.

    Args:
        saved: the file, as `numpy.load` returns it.
        packed: the size of the file in bytes.

    Raises:
        BoundError: an array declares more.
        ValueError: a member is not an array.
    """
    check_members(saved.zip, packed)
    for member in saved.zip.infolist():
        with saved.zip.open(member) as content:
            read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
            shape, _, dtype = read[npy.read_magic(content)](content)
        declared = math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and declared > member.file_size:
            raise BoundError(f"{member.filename} declares {declared:,} bytes, and has {member.file_size:,}")


def check_parquet(metadata: Any, packed: int) -> None:
    """Check that a Parquet file declares no more rows, values and bytes than it may unpack to.

    Args:
        metadata: the metadata of the file, as pyarrow reads it.
        packed: the size of the file in bytes.

    Raises:
        BoundError: it declares more.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    declared = VALUE * metadata.num_rows
    for number in range(metadata.num_columns):
        parts = [group.column(number) for group in groups]
        values, size = sum(part.num_values for part in parts), sum(part.total_uncompressed_size for part in parts)
        declared = max(declared, VALUE * values, size)
    if declared > most_bytes(packed):
        raise BoundError(f"declares {declared:,} bytes, and may have {most_bytes(packed):,}")
