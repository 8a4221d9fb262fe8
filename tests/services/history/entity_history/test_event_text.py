"""Every type of event has a text from its schema, and it holds no more than a person can read."""

from __future__ import annotations

import pytest

from tailrace.schemas import job_master
from tailrace.schemas.types import ExecutionState
from tailrace.services.history.entity_history.event_annotator import AnnotatedEvent
from tailrace.services.history.entity_history.event_groups import EventGroup, group_key

from ...simulated_cluster.cluster import Cluster, graph
from ...simulated_cluster.jobs import with_options
from .simulated_logs import HISTORIES, annotate_log, history


@pytest.mark.parametrize("name", HISTORIES)
def test_text_is_one_short_line_with_type_and_without_long_ids(name: str) -> None:
    annotator, events = annotate_log(history(name))
    for event in events:
        text = annotator.text(event)
        assert text.split()[0].rstrip(":") == event.entry.type.rpartition(".")[2]
        assert "\n" not in text
        assert not any(len(word) >= 32 and set(word) <= set("0123456789abcdef") for word in text.split())


@pytest.mark.parametrize("name", HISTORIES)
def test_group_of_one_has_text_of_its_event(name: str) -> None:
    annotator, events = annotate_log(history(name))
    for event in events:
        assert EventGroup(event, annotator).text() == annotator.text(event)


@pytest.mark.parametrize("name", HISTORIES)
def test_group_names_common_fields_of_its_events(name: str) -> None:
    annotator, events = annotate_log(history(name))
    alike: dict[object, list[AnnotatedEvent]] = {}
    for event in events:
        alike.setdefault(group_key(event), []).append(event)
    for first, *more in alike.values():
        group = EventGroup(first, annotator)
        for event in more:
            group.add(event)
        text = group.text()
        assert (text.replace(":", "").split()[1:2] == [f"x{len(more) + 1:,}"]) == bool(more)
        if isinstance(first.body, job_master.UpdateTaskExecutionState):
            assert first.body.execution_state.value in text.split()


def test_repeatedly_failing_task_is_named_once_with_reason() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=2)
    restarts = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "9"}
    cluster.submit("j", with_options(graph(1), restarts))
    cluster.settle()
    for _ in range(3):
        cluster.finish_all(ExecutionState.FAILED, "it broke: Source: x")
        cluster.settle()
        cluster.tick(2)
        cluster.settle()
    annotator, events = annotate_log(cluster.log)
    failures = [
        event
        for event in events
        if isinstance(event.body, job_master.UpdateTaskExecutionState)
        and event.body.execution_state is ExecutionState.FAILED
        and str(event.entry.task).startswith("Source: ")
    ]
    first, *more = failures
    group = EventGroup(first, annotator)
    for event in more:
        group.add(event)
    assert group.text() == f"UpdateTaskExecutionState x3 FAILED {first.entry.task}: it broke: Source: x"
