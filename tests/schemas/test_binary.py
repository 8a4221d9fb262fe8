"""The compiled codec reads and writes the same bytes as fastavro, for every event."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import msgspec
import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas import avro, dispatcher, everyone, resource_manager
from tailrace.schemas.binary import functions
from tailrace.schemas.body import Body
from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.event import Event
from tailrace.schemas.types import (
    EntryPoint,
    HardwareDescription,
    Header,
    JobGraph,
    JobVertex,
    ResourceProfile,
)

from .strategies import events_of

HEADER = Header(event_id="e", time=1, sender="client/me", sender_epoch=0, recipient="dispatcher")
PREFIX = b"any head"
NO_EVENT = (ValueError, TypeError, KeyError, AttributeError, IndexError)


def fastavro_writes(event: Event) -> bytes:
    datum = msgspec.to_builtins(event.body, builtin_types=(bytes,))
    datum["header"] = msgspec.to_builtins(event.header, builtin_types=(bytes,))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, avro.parsed()[event.body.AVRO_NAME], datum)
    return out.getvalue()


@pytest.mark.parametrize("name", sorted(EVENTS))
@settings(max_examples=example_count(8), deadline=None)
@given(data=st.data())
def test_codec_agrees_with_fastavro_for_every_event(name: str, data: st.DataObject) -> None:
    event = data.draw(events_of(EVENTS[name]))
    written = functions(name).write(event)
    assert written == fastavro_writes(event)
    assert functions(name).read(PREFIX + written, len(PREFIX)) == event


@pytest.mark.parametrize("epoch", [0, -1, 63, 64, 8191, 8192, 2**20 - 1, 2**20, 2**62, 2**63 - 1, -(2**63)])
def test_codec_reads_and_writes_long_of_any_size(epoch: int) -> None:
    event = elected(epoch)
    written = functions(event.body.AVRO_NAME).write(event)
    assert written == fastavro_writes(event)
    assert functions(event.body.AVRO_NAME).read(written, 0) == event


def test_codec_reads_array_blocks_with_sizes() -> None:
    # Avro specification, "Arrays": a negative count is followed by the block's size in bytes.
    program = EntryPoint(target="m:f", arguments=("one", "two"))
    event = Event(
        HEADER, dispatcher.SubmitJob(job_id="j", job_graph=None, entry_point=program, parallelism=None)
    )
    name = event.body.AVRO_NAME
    written = functions(name).write(event)
    plain, sized = b"\x04\x06one\x06two\x00", b"\x03\x10\x06one\x06two\x00"
    assert written.count(plain) == 1
    assert functions(name).read(written.replace(plain, sized), 0) == event


WRONG: dict[str, Body] = {
    "a long that is too large": everyone.LeaderElected(role="r", epoch=2**63, address="a", session="s"),
    "a number for a string": everyone.LeaderElected(role=7, epoch=1, address="a", session="s"),  # type: ignore[arg-type]
    "text for a number": everyone.LeaderElected(role="r", epoch="1", address="a", session="s"),  # type: ignore[arg-type]
    "no value": everyone.LeaderElected(role="r", epoch=None, address="a", session="s"),  # type: ignore[arg-type]
    "half a surrogate pair": everyone.LeaderElected(role="\ud800", epoch=1, address="a", session="s"),
    "an int that is too large": resource_manager.RegisterTaskExecutor(
        address="a",
        resource_id="r",
        data_port=0,
        hardware=HardwareDescription(cpu_cores=2**31, physical_memory=0, jvm_heap=0, managed_memory=0),
        number_of_slots=1,
        default_slot_profile=ResourceProfile(
            cpu_cores=1.0,
            heap_memory_mb=1,
            direct_memory_mb=1,
            native_memory_mb=1,
            network_memory_mb=1,
            managed_memory_mb=1,
        ),
    ),
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_codec_rejects_value_of_wrong_type(body: Body) -> None:
    with pytest.raises(NO_EVENT):
        functions(body.AVRO_NAME).write(Event(HEADER, body))


def test_codec_rejects_truncated_event() -> None:
    event = elected(5)
    written = functions(event.body.AVRO_NAME).write(event)
    for length in range(len(written)):
        with pytest.raises(NO_EVENT):
            functions(event.body.AVRO_NAME).read(written[:length], 0)
    with pytest.raises(ValueError, match="2 bytes follow"):
        functions(event.body.AVRO_NAME).read(written + b"xy", 0)


def test_codec_rejects_integer_above_64_bits() -> None:
    event = elected(2**62)
    written = functions(event.body.AVRO_NAME).write(event)
    epoch = b"\x80" * 8 + b"\x80\x01"
    assert written.count(epoch) == 1
    for longer in (b"\x80" * 9 + b"\x02", b"\x80" * 10 + b"\x01"):
        with pytest.raises(ValueError, match="64 bits"):
            functions(event.body.AVRO_NAME).read(written.replace(epoch, longer), 0)


def elected(epoch: int) -> Event:
    return Event(HEADER, everyone.LeaderElected(role="r", epoch=epoch, address="a", session="s"))


def submission(job_graph: JobGraph, job_id: str = "j") -> Event:
    body = dispatcher.SubmitJob(job_id=job_id, job_graph=job_graph, entry_point=None, parallelism=None)
    return Event(HEADER, body)


def graph_of(vertices: int, **more: Any) -> JobGraph:
    parts = (
        JobVertex(
            vertex_id=f"v{number}",
            name="v",
            operators=(),
            parallelism=1,
            max_parallelism=1,
            slot_sharing_group="",
        )
        for number in range(vertices)
    )
    long_name = "such graphs begin alike " * 8
    return JobGraph(name=long_name, vertices=tuple(parts), edges=(), **more)


def test_codec_decodes_repeated_graph_once() -> None:
    events = [submission(graph_of(2)), submission(graph_of(2), "k")]
    one, other = (functions(event.body.AVRO_NAME).write(event) for event in events)
    read = functions(dispatcher.SubmitJob.AVRO_NAME).read
    results = [read(one, 0), read(PREFIX + other, len(PREFIX))]
    assert results == events
    first, second = (event.body.job_graph for event in results)  # type: ignore[attr-defined]
    assert first is second


def test_codec_distinguishes_graphs_with_same_prefix_and_does_not_cache_truncated_ones() -> None:
    read = functions(dispatcher.SubmitJob.AVRO_NAME).read
    graphs = [graph_of(count, configuration=pairs) for count in (1, 3, 2, 3, 1) for pairs in ({}, {"a": "b"})]
    for event in [submission(graph) for graph in (*graphs, *reversed(graphs))]:
        written = functions(event.body.AVRO_NAME).write(event)
        for length in range(0, len(written), 7):
            with pytest.raises(NO_EVENT):
                read(written[:length], 0)
        assert read(written, 0) == event
