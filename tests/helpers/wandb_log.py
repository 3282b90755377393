"""Reads the log of an offline run of Weights & Biases, which every version of wandb writes in the same form."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from wandb.proto.wandb_internal_pb2 import Record

BLOCK = 2**15  # bytes; a log is one of LevelDB: blocks with pieces of records
HEAD = 7  # bytes before the first piece, and before the content of each: a checksum (4), its size (2) and its kind
WHOLE, LAST = 1, 4  # kinds of pieces


def read_records(directory: Path) -> list[dict[str, Any]]:
    """Return the records of an offline run, each with its type."""
    (path,) = directory.glob("*.wandb")
    found = []
    for content in _contents(path.read_bytes()):
        record = Record.FromString(content)
        plain = MessageToDict(record, preserving_proto_field_name=True)
        found.append({"type": record.WhichOneof("record_type"), **_with_values(plain)})
    return found


def of_type(records: list[dict[str, Any]], kind: str) -> list[Any]:
    """Return the contents of the records of one type, such as "history"."""
    return [record[kind] for record in records if record["type"] == kind]


def _contents(log: bytes) -> Iterator[bytes]:
    place, content = HEAD, b""
    while place + HEAD <= len(log):
        if BLOCK - place % BLOCK < HEAD:  # no head fits into the rest of the block
            place += BLOCK - place % BLOCK
            continue
        size, kind = int.from_bytes(log[place + 4 : place + 6], "little"), log[place + 6]
        content += log[place + HEAD : place + HEAD + size]
        place += HEAD + size
        if kind in (WHOLE, LAST):
            yield content
            content = b""


def _with_values(plain: Any) -> Any:
    """Return a record with a dictionary in place of each list of keys and values."""
    if isinstance(plain, dict):
        return {name: _with_values(value) for name, value in plain.items()}
    if isinstance(plain, list) and plain and all("value_json" in each for each in plain):
        return {".".join(each.get("nested_key", [each.get("key")])): json.loads(each["value_json"]) for each in plain}
    return plain
