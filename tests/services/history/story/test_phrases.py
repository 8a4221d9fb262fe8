"""Each type of event has words of its own, and they hold no more than a person can read."""

from __future__ import annotations

import pytest

from tailrace.schemas import job_master
from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.event import Record
from tailrace.schemas.types import ExecutionState, Header
from tailrace.services.history.story.phrases import phrase_of
from tailrace.services.history.story.teller import Teller

from .logs import HISTORIES, history, told

_SOFT = "Heartbeat"
"""What never is in the log."""


@pytest.mark.parametrize("name", [each for each in EVENTS if f".{_SOFT}From" not in each])
def test_every_type_has_words(name: str) -> None:
    assert phrase_of(EVENTS[name]) is not None


@pytest.mark.parametrize("name", HISTORIES)
def test_words_are_one_short_line_without_ids_that_nobody_reads(name: str) -> None:
    teller, all_told = told(history(name))
    for each in all_told:
        text = teller.text(each)
        assert text
        assert "\n" not in text
        assert not any(len(word) >= 32 and set(word) <= set("0123456789abcdef") for word in text.split())


def test_of_a_stack_only_what_was_raised_is_told() -> None:
    stack = (
        'Traceback (most recent call last):\n  File "job.py", line 3\nZeroDivisionError: division by zero\n'
    )
    body = job_master.UpdateTaskExecutionState(
        job_id="j", execution_attempt_id="a", execution_state=ExecutionState.FAILED, failure=stack
    )
    header = Header(event_id="e", time=0, sender="task_executor/te", sender_epoch=0, recipient="job_master/j")
    teller = Teller()
    assert (
        teller.text(teller.tell(Record(0, header, body)))
        == "task a FAILED: ZeroDivisionError: division by zero"
    )
