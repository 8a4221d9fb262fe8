"""The events over REST: pages, streams and the log have the same events."""

from __future__ import annotations

import json
import socket
from itertools import islice
from typing import Any

import pytest
from polling import wait_until

from tailrace.schemas.event import Record
from tailrace.schemas.everyone import TaskExecutorLost
from tailrace.services.history.event_index import EventIndex, event_type
from tailrace.services.history.event_job_index import EventJobIndex
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.rest import event_feed
from tailrace.services.rest.api.log import LogPoint, create_overview

from .live_server import Message, append, golden_records, serve

LOGS = ["two_jobs_compete_for_the_last_slot", "a_task_executor_is_lost_while_a_job_is_deployed"]


def as_events(messages: list[Message]) -> list[Any]:
    events = [json.loads(message.data or "") for message in messages]
    assert [(message.event, message.id) for message in messages] == [
        ("log", str(event["offset"])) for event in events
    ]
    return events


@pytest.mark.parametrize("name", LOGS)
def test_stream_and_pages_are_log(name: str) -> None:
    """Also for each job and each type, and for a stream that begins before the end of the log and passes it."""
    records, log, jobs = golden_records(name), MemoryEventLog(), EventJobIndex()
    job_of = {record.offset: jobs.on_event(record) for record in records}
    half = len(records) // 2
    append(log, records[:half])
    selections = [("", records)]
    for job in sorted({job for job in job_of.values() if job is not None}):
        selections.append((f"&job={job}", [record for record in records if job_of[record.offset] == job]))
    for type_ in sorted({event_type(record) for record in records})[:5]:
        of_type = [record for record in records if event_type(record) == type_]
        selections.append((f"&type={type_}", of_type))
        selections.append((f"&type={type_.rpartition('.')[2]}", of_type))
    with serve(log) as server:
        for query, wanted in selections[:4]:
            early = [each for each in wanted if each.offset < half]
            with server.stream(f"from=0{query}") as messages:
                found = as_events(list(islice(messages, len(early))))
                assert [event["offset"] for event in found] == [each.offset for each in early]
        with server.stream("from=0") as messages, server.stream() as new:
            append(log, records[half:])
            found = as_events(list(islice(messages, len(records))))
            assert found[half:] == as_events(list(islice(new, len(records) - half)))
        assert [(event["offset"], event["header"]["event_id"]) for event in found] == [
            (record.offset, record.header.event_id) for record in records
        ]
        for query, wanted in selections:
            pages = server.pages(query)
            offsets = {record.offset for record in wanted}
            assert pages == [event for event in found if event["offset"] in offsets]
            if wanted:
                with server.stream(f"from=0{query}") as messages:
                    assert as_events(list(islice(messages, len(wanted)))) == pages


def test_stream_continues_after_last_event_id() -> None:
    records, log = golden_records(LOGS[0]), MemoryEventLog()
    append(log, records)
    with serve(log) as server:
        events = server.pages()
        for offset in (0, len(records) // 2, len(records) - 2):
            with server.stream("from=3", last_event_id=offset) as messages:
                assert as_events(list(islice(messages, 1))) == [events[offset + 1]]
        with server.stream(last_event_id=len(records) - 1) as messages:
            append(log, records[:1])
            assert [event["offset"] for event in as_events(list(islice(messages, 1)))] == [len(records)]
        assert server.get(f"/api/v1/events/stream?from={len(records) + 5}")[0] == 404
        assert server.get("/api/v1/events/stream?from=yesterday")[0] == 400
        assert server.get("/api/v1/events/stream?job=nobody")[0] == 404


def test_stream_that_is_behind_buffer_reads_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "MAX_BUFFERED", 1)
    records, log = golden_records(LOGS[0]), MemoryEventLog()
    with serve(log) as server, server.stream() as messages:
        append(log, records)
        assert [event["offset"] for event in as_events(list(islice(messages, len(records))))] == list(
            range(len(records))
        )


def test_quiet_stream_gets_comments_that_move_it_past_skipped_events() -> None:
    records, log = golden_records(LOGS[0]), MemoryEventLog()
    with serve(log, keep_alive_s=0.05) as server, server.stream("type=ClusterTerminated") as messages:
        append(log, records)
        moved = next(message for message in messages if message.id is not None)
        assert (moved.data, moved.comment) == (None, "keep-alive")
        wait_until(lambda: next(messages).id == str(len(records) - 1) or moved.id == str(len(records) - 1))


def test_ended_client_is_forgotten() -> None:
    with serve(MemoryEventLog(), keep_alive_s=0.05) as server:
        with server.stream(), server.stream():
            assert server.feed.count == 2
        wait_until(lambda: server.feed.count == 0, "both streams to end")


def test_client_that_takes_nothing_is_disconnected() -> None:
    records, log = golden_records(LOGS[0]), MemoryEventLog()
    with serve(log, send_timeout_s=0.2) as server:
        with server.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wait_until(lambda: server.feed.count == 1, "the stream to begin")

            def is_gone() -> bool:
                append(log, records)
                return server.feed.count == 0

            wait_until(is_gone, "the stream to be disconnected")
            assert server.get("/overview")[0] == 200


def test_streams_above_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "MAX_STREAMS", 2)
    with serve(MemoryEventLog()) as server, server.stream(), server.stream():
        status, body = server.get("/api/v1/events/stream")
        assert (status, len(body["errors"])) == (503, 1)
        assert server.get("/overview")[0] == 200


def test_streams_end_with_server() -> None:
    with serve(MemoryEventLog()) as server:
        connection = server.connect()
        wait_until(lambda: server.feed.count == 1, "the stream to begin")
    with connection:
        received = b""
        while data := connection.recv(4096):
            received += data
        assert received.endswith(b"0\r\n\r\n")


def test_index_selects_what_a_scan_selects() -> None:
    records, index, jobs = golden_records("walk_0"), EventIndex(), EventJobIndex()
    index.add(records)
    job_of = {record.offset: jobs.on_event(record) for record in records}
    types = {event_type(record) for record in records}
    names = {None, *types, *(name.rpartition(".")[2] for name in types), "Unknown"}
    for job in {*index.jobs(), None, "unknown"}:
        for type_ in names:
            if job is type_ is None:
                continue
            expected = [
                record.offset
                for record in records
                if job in (None, job_of[record.offset])
                and type_ in (None, event_type(record), event_type(record).rpartition(".")[2])
            ]
            for start in (0, len(records) // 3):
                later = [offset for offset in expected if offset >= start]
                for limit in (1, 5, len(records)):
                    assert index.select(start, limit, job, type_) == later[:limit]
                    assert index.select_last(range(start, len(records)), limit, job, type_) == later[-limit:]
                    earlier = [offset for offset in expected if offset < start]
                    assert index.select_last(range(start), limit, job, type_) == earlier[-limit:]


@pytest.mark.parametrize("buckets", [1, 7, 100])
def test_buckets_have_all_events_once(buckets: int) -> None:
    """In order, and each event in the bucket of its time."""
    for name in LOGS:
        records, index = golden_records(name), EventIndex()
        index.add(records)
        for start, end in ((0, len(records)), (len(records) // 3, len(records) // 2), (3, 4)):
            part = records[start:end]
            found = create_overview(index, "c", range(start, end), buckets, 1_000)
            assert (found.events, found.first, found.last) == (
                len(part),
                LogPoint(start, latest(records[: start + 1])),
                LogPoint(end - 1, latest(records[:end])),
            )
            assert sum(bucket.events for bucket in found.buckets) == len(part)
            assert len(found.buckets) == buckets
            for record in part:
                time = latest(records[: record.offset + 1])
                (bucket,) = (
                    each for each in found.buckets if each.first <= record.offset < each.first + each.events
                )
                assert bucket.start <= time < bucket.start + found.bucket_duration


def latest(records: list[Record]) -> int:
    return max(record.header.time for record in records)


def test_marks_are_notable_events_and_bounded() -> None:
    records, log = golden_records("a_task_executor_is_lost_while_a_job_is_deployed"), MemoryEventLog()
    append(log, records)
    with serve(log) as server:
        status, found = server.get("/api/v1/log?buckets=10")
        assert (status, found["events"], len(found["buckets"])) == (200, len(records), 10)
        marks = {(mark["kind"], mark["text"]) for mark in found["marks"]}
        lost = next(
            record.body.resource_id for record in records if isinstance(record.body, TaskExecutorLost)
        )
        assert ("task-executor-lost", lost) in marks
        assert {text for kind, text in marks if kind == "job"} >= {"CREATED", "RUNNING"}
        assert [mark["offset"] for mark in found["marks"]] == sorted(
            mark["offset"] for mark in found["marks"]
        )
        _, few = server.get("/api/v1/log?marks=2")
        assert (len(few["marks"]), few["marks_left_out"]) == (2, len(found["marks"]) - 2)
        assert server.get("/api/v1/log?from=5&to=3")[0] == 404
        assert server.get("/api/v1/log?buckets=100000")[0] == 400
    with serve(MemoryEventLog()) as server:
        assert server.get("/api/v1/log?buckets=3")[1]["first"] is None
