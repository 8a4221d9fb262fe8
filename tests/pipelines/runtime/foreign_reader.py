"""Reads records in an interpreter of its own, as a worker does: classes arrive by cloudpickle, by value.

One JSON object per line: `type` (the JSON form of a record type), and `format` with `values` (base64), or `file`. The
answer has `records` and `bad`, the reason of each by its index; or `failure`, for a file.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
from typing import Any

import pyarrow as pa

from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.formats import ValueFormat, create_reader, read_valid
from tailrace.pipelines.runtime.operators.files.avro_reader import AvroFileReader
from tailrace.pipelines.runtime.operators.files.source_storage import list_files
from tailrace.pipelines.types import RecordType


def shown(value: Any) -> Any:
    """Converts a record to JSON that distinguishes types."""
    if dataclasses.is_dataclass(value):
        return {
            "class": [[f.name, shown(getattr(value, f.name))] for f in dataclasses.fields(value)],
        }
    if hasattr(value, "_asdict"):
        return {"class": [[name, shown(item)] for name, item in value._asdict().items()]}
    if isinstance(value, list):
        return {"list": list(map(shown, value))}
    return f"{type(value).__name__} {value!r}"


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    record_type = RecordType.from_json(asked["type"])
    if "file" in asked:
        (file,) = list_files(asked["file"])
        try:
            pieces = list(AvroFileReader(record_type, None).read(file, 0))
        except TaskError as error:
            return {"failure": str(error)}
        return {"records": [shown(record) for piece in pieces for record in piece.rows or []]}
    values = pa.array([base64.b64decode(value) for value in asked["values"]], pa.binary())
    reader = create_reader(ValueFormat.from_parameters(asked["format"]), record_type)
    batch, bad = read_valid(reader, pa.array(range(len(values)), pa.int64()), values)
    batch.columns(record_type)  # what is read can always be laid out
    return {"records": list(map(shown, batch.values)), "bad": {value.index: value.why for value in bad}}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
