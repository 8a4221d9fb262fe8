"""Writes a log as lines of JSON, for `grep`, `jq` and any program that reads JSON. tailrace does not read them back.

    {"offset": 0, "type": "...", "header": {...}, "body": {...}}      an event
    {"offset": 1, "value": "..."}                                     an unreadable value, in base64

Times are in microseconds since the epoch, bytes in base64. A number that JSON has no word for (NaN, an infinity) is
null.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO

import msgspec

from ....schemas.event import Record
from .manifest import Item

_PREFIX = "tailrace."


def write_json_lines(file: BinaryIO, batches: Iterable[list[Item]]) -> None:
    """Writes the entries, in order. Raises OSError."""
    encoder = msgspec.json.Encoder()
    for items in batches:
        file.write(encoder.encode_lines(map(_line, items)))


def _line(item: Item) -> dict[str, object]:
    if not isinstance(item, Record):
        return {"offset": item.offset, "value": item.value}
    name = item.body.AVRO_NAME.removeprefix(_PREFIX)
    return {"offset": item.offset, "type": name, "header": item.header, "body": item.body}
