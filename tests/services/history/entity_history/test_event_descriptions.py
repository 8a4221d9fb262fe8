"""Each type of event has words of its own, and they hold no more than a person can read."""

from __future__ import annotations

import pytest

from tailrace.schemas import job_master
from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.event import Record
from tailrace.schemas.types import ExecutionState, Header
from tailrace.services.history.entity_history.event_annotator import EventAnnotator
from tailrace.services.history.entity_history.event_descriptions import find_template
from tailrace.services.history.entity_history.event_groups import EventGroup, _singular

from ...simulated_cluster.cluster import Cluster, graph
from ...simulated_cluster.jobs import with_options
from .simulated_logs import HISTORIES, annotate_log, history

_SOFT = "Heartbeat"
"""What never is in the log."""


@pytest.mark.parametrize("name", [each for each in EVENTS if f".{_SOFT}From" not in each])
def test_every_type_has_words(name: str) -> None:
    assert find_template(EVENTS[name]) is not None


@pytest.mark.parametrize("name", HISTORIES)
def test_words_are_one_short_line_without_ids_that_nobody_reads(name: str) -> None:
    teller, all_told = annotate_log(history(name))
    for each in all_told:
        text = teller.text(each)
        assert text
        assert "\n" not in text
        assert not any(len(word) >= 32 and set(word) <= set("0123456789abcdef") for word in text.split())


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("1 tasks are RUNNING: map (1/1)", "1 task is RUNNING: map (1/1)"),
        (
            "1 tasks have their part of checkpoint 3 in storage: a",
            "1 task has its part of checkpoint 3 in storage: a",
        ),
        ("runs 1 tasks: a", "runs 1 task: a"),
        ("the files of 1 checkpoints are deleted: 3", "the files of 1 checkpoint are deleted: 3"),
        ("11 tasks are RUNNING", "11 tasks are RUNNING"),
    ],
)
def test_one_is_told_in_the_grammar_of_one(said: str, wanted: str) -> None:
    assert _singular(said) == wanted


def test_of_a_task_that_fails_again_and_again_its_whole_name_is_told() -> None:
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
    teller, all_told = annotate_log(cluster.log)
    named = [
        (teller.task(each.body.execution_attempt_id), each)
        for each in all_told
        if isinstance(each.body, job_master.UpdateTaskExecutionState)
        and each.body.execution_state is ExecutionState.FAILED
    ]
    name = next(name for name, _ in named if name.startswith("Source: "))
    first, *more = (each for of, each in named if of == name)
    group = EventGroup(first, teller)
    for each in more:
        group.add(each)
    assert group.text() == f"1 task FAILED ({name}) (3 times in all): it broke: Source: x"


def test_of_a_stack_only_what_was_raised_is_told() -> None:
    stack = (
        'Traceback (most recent call last):\n  File "job.py", line 3\nZeroDivisionError: division by zero\n'
    )
    body = job_master.UpdateTaskExecutionState(
        job_id="j", execution_attempt_id="a", execution_state=ExecutionState.FAILED, failure=stack
    )
    header = Header(event_id="e", time=0, sender="task_executor/te", sender_epoch=0, recipient="job_master/j")
    teller = EventAnnotator()
    assert (
        teller.text(teller.annotate(Record(0, header, body)))
        == "task a FAILED: ZeroDivisionError: division by zero"
    )
