"""Files of length-delimited Protobuf messages: those of Google's own functions, once, however they are read again."""

from __future__ import annotations

import gzip
import io
import re
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from connectors import Step, build_one, committed_records, operator_config
from google.protobuf import proto
from hypothesis import given, settings
from hypothesis import strategies as st
from protobuf_messages import orders

from tailrace import FileSink, StreamExecutionEnvironment
from tailrace.pipelines.api.connectors.message_fields import find_field_errors
from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.operators.files import protobuf_reader
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.types import RecordType

Order = orders().Order
ORDER = "shop_orders_pb2:Order"
steps = st.lists(st.integers(1, 9) | st.sampled_from(["commit", "crash"]), max_size=15)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
messages = st.builds(
    Order, user=texts, number=st.integers(-(2**63), 2**63 - 1), picture=st.binary(max_size=400)
)


@dataclass(frozen=True)
class Sale:
    user: str
    number: int
    note: str | None
    picture: bytes


class Line(NamedTuple):
    item: str
    pieces: int


def delimited(records: list[Any]) -> bytes:
    out = io.BytesIO()
    for record in records:
        proto.serialize_length_prefixed(record, out)
    return out.getvalue()


def read(
    path: Path, output_type: object = None, taken: list[Step] | None = None, parallelism: int = 1
) -> list[Any]:
    config = operator_config(
        "files", paths=[str(path)], format="protobuf", message=ORDER, output_type=output_type
    )
    return [
        record
        for subtask in range(parallelism)
        for record in committed_records(config, taken or [], subtask=subtask, parallelism=parallelism)
    ]


def write(directory: Path, records: list[Any], input_type: object = None) -> list[Path]:
    config = operator_config(
        "file_sink", path=str(directory), format="protobuf", prefix="part", message=ORDER
    )
    sink, _ = build_one(config, input_type=input_type)
    sink.open()
    for start in range(0, len(records), 3):
        sink.process(Batch([0] * len(records[start : start + 3]), records[start : start + 3]))
        sink.before_commit()
        list(sink.take_changes())
    sink.finish()
    sink.before_commit()
    list(sink.take_changes())
    sink.committed()
    sink.close()
    return sorted(directory.glob("*.pb"))


@settings(deadline=None, max_examples=50)
@given(
    records=st.lists(messages, max_size=12), block=st.integers(1, 300), n=st.integers(1, 3), taken=steps,
    is_compressed=st.booleans(),
)  # fmt: skip
def test_messages_are_read_once_with_any_crash(
    records: list[Any], block: int, n: int, taken: list[Step], is_compressed: bool
) -> None:
    with TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patch:
        patch.setattr(protobuf_reader, "_BLOCK_BYTES", block)
        data = delimited(records)
        path = Path(made) / ("orders.pb.gz" if is_compressed else "orders.pb")
        path.write_bytes(gzip.compress(data) if is_compressed else data)
        assert read(path, None, taken, n) == records
        sales = [Sale(r.user, r.number, None, r.picture) for r in records]
        assert read(path, Sale, taken, n) == sales


@settings(deadline=None, max_examples=30)
@given(st.lists(messages, max_size=9))
def test_sink_writes_messages_that_others_read(records: list[Any]) -> None:
    sales = [Sale(r.user, r.number, None, r.picture) for r in records]
    for written, input_type in ((records, None), (sales, Sale)):
        with TemporaryDirectory() as made:
            files = write(Path(made), written, input_type)
            assert b"".join(path.read_bytes() for path in files) == delimited(records)
            assert read(Path(made)) == records


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (delimited([Order(number=1)])[:-1], "a message behind message 1: the file ends within a message"),
        (delimited([Order(number=1)]) + b"\xff", "message 2: the file ends within a message"),
        (delimited([Order(number=1)]) + b"\x01\xff", "message 2: .*DecodeError"),
        (b"\xff" * 9, "message 1: its length is no length of a message"),
        (b"\xff\xff\xff\xff\x7f", "message 1: its length is no length of a message"),
    ],
)
def test_invalid_file_fails_with_its_place(tmp_path: Path, data: bytes, where: str) -> None:
    path = tmp_path / "a.pb"
    path.write_bytes(data)
    with pytest.raises(TaskError, match=f"a.pb could not be read at .*{where}"):
        read(path)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"town": str}, "the message shop.Order has no field 'town' of Row; it has user, number"),
        ({"number": str}, "the field shop.Order.number is of type .*int.*, not str"),
        ({"user": bytes}, "the field shop.Order.user is of type str, not bytes"),
        ({"lines": int}, "the field shop.Order.lines is repeated: declare a list, not int"),
        ({"user": list[str]}, "the field shop.Order.user is not repeated: declare no list"),
        ({"prices": list[str]}, "the field shop.Order.prices is a map: declare dict"),
        ({"lines": list[int]}, "the field shop.Order.lines is a message: declare a dataclass or NamedTuple"),
        ({"color": float}, "the field shop.Order.color is of type .*str, not float"),
        ({"user": str, "note": str | None, "lines": list[Line], "picture": bytes, "discount": float}, None),
        ({"prices": dict[str, Any], "cash": bool | None, "color": str, "number": int}, None),
    ],
)
def test_fields_are_checked_when_program_is_built(fields: dict[str, Any], fault: str | None) -> None:
    records = RecordType.of(NamedTuple("Row", list(fields.items())))
    for is_sink in (True, False):
        found = list(find_field_errors(ORDER, records, is_sink=is_sink))
        if fault is None:
            assert found == []
        else:
            (one,) = found
            assert re.match(fault, one)


def test_job_copies_messages(tmp_path: Path) -> None:
    records = [Order(user=f"u{n}", number=n) for n in range(50)]
    (tmp_path / "in.pb").write_bytes(delimited(records))
    env = StreamExecutionEnvironment.local()
    stream = env.read_protobuf(str(tmp_path / "in.pb"), message=Order)
    stream.sink_to(FileSink(str(tmp_path / "out"), "protobuf", message=Order))
    env.execute("copy")
    assert sorted(r.number for r in read(tmp_path / "out")) == list(range(50))
