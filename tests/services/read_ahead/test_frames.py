"""What is read from frames is what was decoded, for every kind of event."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas import dispatcher
from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import Header
from tailrace.services.log import Codec, Unreadable
from tailrace.services.read_ahead.frames import CodecForFrames, Encoded, chunks, pack, unpack
from tailrace.services.snapshots.hashing import StateHasher
from tailrace.services.snapshots.taking import all_roles

from ...schemas.strategies import events_of
from ..simulation import Cluster, graph

CODEC = Codec("c.log")


def passed_on(records: list[Record]) -> list[Record]:
    """As a child and its owner do."""
    child = CodecForFrames("c.log")
    read = []
    for each in records:
        event = child.decode(CODEC.encode(Event(each.header, each.body)))
        read.append(Record(each.offset, event.header, event.body))
    _, records, unreadable = unpack(pack(read, 7, 8), CODEC, "c.log")
    assert unreadable == []
    return records


@pytest.mark.parametrize("name", sorted(EVENTS))
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_an_event_of_any_kind_comes_through(name: str, data: st.DataObject) -> None:
    event = data.draw(events_of(EVENTS[name]))
    records = [Record(3, event.header, event.body)]
    assert passed_on(records) == records


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_order_stays_and_gaps_do(data: st.DataObject) -> None:
    kinds = st.sampled_from(sorted(EVENTS.values(), key=lambda kind: kind.AVRO_NAME))
    events = data.draw(st.lists(kinds.flatmap(events_of), max_size=12))
    records = [Record(2 * number, event.header, event.body) for number, event in enumerate(events)]
    assert passed_on(records) == records


def test_a_conversation_that_was_read_ahead_comes_to_the_same_states() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", 4)
    cluster.settle()
    for number in range(3):
        cluster.submit(f"j{number}", graph(2))
        cluster.settle()
        cluster.finish_all()
        cluster.settle()
    replica = all_roles()
    for batch in chunks(cluster.log, 50):
        for record in passed_on(list(batch)):
            replica.apply(record)
    plain = all_roles()
    for record in cluster.log:
        plain.apply(record)
    assert StateHasher(replica).hashes() == StateHasher(plain).hashes()
    assert replica.states == plain.states


def test_a_graph_that_is_torn_off_is_told_of_where_it_is_read() -> None:
    body = dispatcher.SubmitJob(job_id="j", job_graph=None, entry_point=None, parallelism=None)
    header = Header(event_id="e", time=1, sender="client/me", sender_epoch=0, recipient="dispatcher")
    torn = CODEC.encode(Event(header, body))[:-1]
    left = CodecForFrames("c.log").decode(torn)
    assert isinstance(left.body, Encoded)
    _, records, unreadable = unpack(pack([Record(3, left.header, left.body)], 4, 5), CODEC, "c.log")
    assert records == []
    assert [(each.offset, each.value) for each in unreadable] == [(3, torn)]


def test_what_the_child_could_not_read_comes_through() -> None:
    told = Unreadable("c.log", 0, 5, "no Avro", b"key", b"value")
    frame, records, unreadable = unpack(pack([], 6, 7, [told]), CODEC, "c.log")
    assert (frame.position, frame.bytes_read, records, unreadable) == (6, 7, [], [told])


def test_records_are_divided_without_loss() -> None:
    assert [list(each) for each in chunks(range(10), 4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    empty: list[int] = []
    assert [list(each) for each in chunks(empty, 4)] == [[]]
