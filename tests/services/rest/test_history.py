"""Causes, effects, stories and differences over REST: they are those of the command line, and agree with the log."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.services.history.entity_history import reader
from tailrace.services.history.entity_history.entity_lookup import EntityQuery
from tailrace.services.history.event_index import event_type
from tailrace.services.history.log_source import LogSource
from tailrace.services.history.state_diff import diff_states
from tailrace.services.history.time_travel import replica_at
from tailrace.services.log.memory import MemoryEventLog

from .live_server import append, golden_records, serve

NAME = "one_task_fails_and_is_restarted_alone"


def offsets_of(tree: dict[str, Any]) -> list[int]:
    return [tree["line"]["offset"], *(offset for each in tree["effects"] for offset in offsets_of(each))]


def test_effects_are_inverse_of_causes() -> None:
    records, log = golden_records(NAME), MemoryEventLog()
    append(log, records)
    with serve(log) as server:
        causes: dict[int, set[int]] = {}
        for record in records:
            status, found = server.get(f"/api/v1/events/{record.offset}/causes")
            assert status == 200, found
            offset, *above = [line["offset"] for line in found["lines"]]
            assert (offset, above[:1]) == (
                record.offset,
                [] if record.header.cause is None else [record.header.cause],
            )
            causes[offset] = set(above)
        for record in records[::3]:
            _, found = server.get(f"/api/v1/events/{record.offset}/effects?detail=all")
            root, *below = offsets_of(found["tree"])
            assert root == record.offset
            assert sorted(below) == [offset for offset, above in causes.items() if record.offset in above]
            assert found["count"] == len(below)
            _, grouped = server.get(f"/api/v1/events/{record.offset}/effects")
            assert grouped["count"] == found["count"]


def test_event_is_that_of_pages() -> None:
    records, log = golden_records(NAME), MemoryEventLog()
    append(log, records)
    with serve(log) as server:
        pages = server.pages(limit=100)
        assert [server.get(f"/api/v1/events/{record.offset}")[1] for record in records[::7]] == pages[::7]
        assert {event["type"] for event in pages} == {event_type(record) for record in records}
        for path in ("", "/causes", "/effects"):
            assert server.get(f"/api/v1/events/{len(records)}{path}")[0] == 404
            assert server.get(f"/api/v1/events/x{path}")[0] == 400


def test_story_and_difference_are_those_of_command_line() -> None:
    records, log = golden_records(NAME), MemoryEventLog()
    append(log, records)
    job = next(record.body.job_id for record in records if hasattr(record.body, "job_id"))
    source = LogSource(log, "memory")
    timeline, _, _ = reader.build_entity_history(source, EntityQuery(job), 0, len(records), everything=False)
    difference = diff_states(replica_at(source, 5), replica_at(source, len(records) - 9))
    with serve(log) as server:
        status, story = server.get(f"/api/v1/story?entity={job}")
        assert status == 200, story
        assert story == msgspec.json.decode(msgspec.json.encode(timeline.build()))
        assert {entity for line in story["lines"] for entity in line["entities"]} >= {f"job:{job}"}
        _, later = server.get(f"/api/v1/story?entity=job:{job}&from=20&detail=all")
        assert later["outside"] > 0
        assert server.get("/api/v1/story?entity=nobody")[0] == 404
        assert server.get("/api/v1/story")[0] == 400
        _, found = server.get(f"/api/v1/diff?from=5&to={len(records) - 9}")
        assert found == msgspec.json.decode(msgspec.json.encode(difference))
        _, part = server.get(f"/api/v1/diff?from=5&to={len(records) - 9}&address=job_master/*")
        assert part["changes"] == [each for each in found["changes"] if each["path"][0] == "job_master"]
        assert len(found["changes"]) > len(part["changes"]) > 0
        assert server.get("/api/v1/diff?from=7&to=7")[1]["changes"] == []
        assert server.get("/api/v1/diff")[0] == 400
        assert server.get("/api/v1/diff?from=99999")[0] == 404
