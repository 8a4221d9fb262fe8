"""A history has one line per event, with sender, recipient, cause and key fields."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

from tailrace.schemas.event import Record
from tailrace.schemas.everyone import ConfigurationChanged, LeaderElected
from tailrace.schemas.types import Header, RestOrigin
from tailrace.services.history import EventFilter, FormattedEvent, HistoryProjection
from tailrace.services.history.entity_history.event_annotator import AnnotatedEvent, EventAnnotator
from tailrace.services.history.event_formatting import align_columns, columns, line

from ..simulated_cluster.cluster import Cluster, start_cluster


@pytest.fixture
def cluster() -> Cluster:
    """Returns a cluster with a finished and a rejected job."""
    cluster = start_cluster("te-1", slots=2)
    cluster.submit("job-a")
    cluster.settle()
    cluster.submit("job-a", client="client/other")
    cluster.finish_all()
    cluster.settle()
    return cluster


def event(cluster: Cluster) -> list[FormattedEvent]:
    fold = HistoryProjection()
    return [fold.apply(record) for record in cluster.log]


def of_type(entries: list[FormattedEvent], name: str) -> list[FormattedEvent]:
    return [entry for entry in entries if entry.type == name]


def test_every_event_has_one_line_in_order(cluster: Cluster) -> None:
    entries = event(cluster)
    assert [entry.record for entry in entries] == cluster.log
    assert [columns(entry)[0] for entry in entries] == [str(record.offset) for record in cluster.log]


def test_line_has_sender_recipient_type_cause_and_key_fields(cluster: Cluster) -> None:
    (accepted,) = of_type(event(cluster), "task_executor.SlotsAccepted")
    offset, _, who, name, cause, fields = columns(accepted)
    assert who == "job_master/job-a -> task_executor/te-1"
    assert name == "SlotsAccepted"
    assert cause == f"<- {accepted.record.header.cause}"
    assert fields.startswith("allocation_ids=[")
    assert line(accepted).split()[0] == offset


def test_line_does_not_repeat_addresses(cluster: Cluster) -> None:
    (started,) = of_type(event(cluster), "job_master.StartJob")
    assert "job_id=" not in columns(started)[5]


def test_tasks_have_readable_names(cluster: Cluster) -> None:
    updates = of_type(event(cluster), "job_master.UpdateTaskExecutionState")
    assert {update.task for update in updates} == {
        "Source: Socket Stream -> Flat Map (1/1)",
        "Window(TumblingProcessingTimeWindows(5000 ms)) -> Sink: Print (1/1)",
    }
    assert all(f'task="{update.task}"' in line(update) for update in updates)


def test_long_ids_are_short_in_text_and_complete_in_json(cluster: Cluster) -> None:
    (request,) = of_type(event(cluster), "resource_manager.RequestSlot")
    allocation_id = request.record.body.allocation_id  # type: ignore[attr-defined]
    assert allocation_id not in line(request)
    assert allocation_id[:8] in line(request)
    assert request.as_data()["body"]["allocation_id"] == allocation_id


def test_event_belongs_to_job_even_if_it_does_not_name_it(cluster: Cluster) -> None:
    entries = event(cluster)
    (answer,) = of_type(entries, "resource_manager.SlotRequestAccepted")
    (freed,) = of_type(entries, "resource_manager.NotifySlotAvailable")
    assert answer.job == freed.job == "job-a"
    assert of_type(entries, "resource_manager.RegisterTaskExecutor")[0].job is None


def test_json_is_complete(cluster: Cluster) -> None:
    for entry in event(cluster):
        data = json.loads(msgspec.json.encode(entry.as_data()))
        assert data["offset"] == entry.record.offset
        assert data["header"] == json.loads(msgspec.json.encode(entry.record.header))
        assert set(data["body"]) == set(entry.record.body.__struct_fields__)


def test_event_of_deposed_leader_is_marked(cluster: Cluster) -> None:
    claim = LeaderElected(role="task_executor/te-1", epoch=2, address="b", session="b")
    cluster.send("task_executor/te-1", "*", claim, epoch=2)
    body = cluster.events_of("UpdateTaskExecutionState")[0].body
    cluster.send("task_executor/te-1", "job_master/job-a", body, epoch=1)
    last = event(cluster)[-1]
    assert last.ignored is not None
    assert "epoch 1" in last.ignored
    assert "IGNORED" in line(last)


def test_illegal_event_is_marked_with_reason(cluster: Cluster) -> None:
    cluster.send(
        "task_executor/te-1", "job_master/job-a", cluster.events_of("UpdateTaskExecutionState")[0].body
    )
    last = event(cluster)[-1]
    assert last.ignored is not None
    assert "has ended" in last.ignored


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["RequestSlot"], {"resource_manager.RequestSlot", "task_executor.RequestSlot"}),
        (["task_executor.requestslot"], {"task_executor.RequestSlot"}),
        (["JobRejected", "JobFinished"], {"client.JobRejected", "client.JobFinished"}),
    ],
)
def test_filter_by_type(cluster: Cluster, types: list[str], expected: set[str]) -> None:
    wanted = EventFilter.from_options(types)
    assert {entry.type for entry in event(cluster) if wanted.matches(entry)} == expected


def test_filter_by_job_and_offset(cluster: Cluster) -> None:
    entries = event(cluster)
    submitted = of_type(entries, "dispatcher.SubmitJob")[0].record.offset
    of_job = [entry for entry in entries if EventFilter.from_options(job="job-a").matches(entry)]
    assert of_job[0].record.offset == submitted
    later = [
        entry
        for entry in entries
        if EventFilter.from_options(job="job-a", start=submitted + 1).matches(entry)
    ]
    assert later == of_job[1:]
    assert not [entry for entry in entries if EventFilter.from_options(job="job-b").matches(entry)]


def test_columns_are_aligned(cluster: Cluster) -> None:
    lines = align_columns(event(cluster))
    places = {
        text.index(" -> ") >= 0 and text.index(columns(entry)[3])
        for text, entry in zip(lines, event(cluster), strict=True)
    }
    assert len(places) == 1


@pytest.mark.parametrize("time", [0, 2**53, -1, 2**63 - 1, -(2**63)])
def test_any_time_and_text_is_formatted_safely(time: int) -> None:
    """A log may have them from before the Dispatcher rejected such requests."""
    body = LeaderElected(role="\x1b[2J", epoch=1, address="a\x07b", session="\u202e")
    header = Header(event_id="e", time=time, sender="client/\x1b]0;title\n", sender_epoch=0, recipient="*")
    event = line(FormattedEvent(Record(0, header, body), None))
    assert event.isprintable()
    assert "client/\\x1b]0;title\\n -> everyone" in event


def test_long_configuration_is_cut_as_long_text(cluster: Cluster) -> None:
    configuration = {f"some.option-{number}": "a value" for number in range(30)}
    offset = cluster.send("dispatcher", "*", ConfigurationChanged(configuration=configuration))
    fields = columns(event(cluster)[offset])[-1]
    assert fields.startswith("configuration=some.option-0:")
    assert fields.endswith("...")
    assert len(fields) < 200


def test_request_by_rest_names_principal_and_server(cluster: Cluster) -> None:
    (submitted, *_) = of_type(event(cluster), "dispatcher.SubmitJob")
    record = submitted.record
    origin = RestOrigin(principal="ci", server="127.0.0.1:8081")
    asked = Record(record.offset, replace(record.header, rest_origin=origin), record.body)
    entry = replace(submitted, record=asked)
    assert line(entry).endswith("(by ci at REST server 127.0.0.1:8081)")
    assert EventAnnotator().who(AnnotatedEvent(entry, ())) == "ci by REST server 127.0.0.1:8081 -> Dispatcher"
