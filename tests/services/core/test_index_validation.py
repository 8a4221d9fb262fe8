"""`debug.validate-indexes` reports a wrong index at the event that caused it."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from immutables import Map

from tailrace.schemas.event import Record
from tailrace.services.configuration import Configuration
from tailrace.services.core.index_validation import IndexDiverged
from tailrace.services.core.replica import Replica
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.job_master import JobMaster
from tailrace.services.processes.index_validation import INDEX_ERRORS, index_errors
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.task_executor import TaskExecutor

from ..scenarios import SCENARIOS
from ..snapshots.simulated_logs import HISTORIES, history

ROLES = (Dispatcher, ResourceManager, JobMaster, TaskExecutor)


@pytest.mark.parametrize("name", HISTORIES)
def test_indexes_of_every_state_of_history_are_consistent(name: str | int) -> None:
    replica = Replica([role() for role in ROLES], on_illegal=lambda *_: None, index_errors=INDEX_ERRORS)
    for record in history(name):
        replica.apply(record)
    assert replica.offset == history(name)[-1].offset


class Forgetful(Dispatcher):
    """A role with a bug: it does not update an index."""

    def evolve(self, state: DispatcherState, record: Record) -> DispatcherState:
        return msgspec.structs.replace(super().evolve(state, record), live=Map())


def test_validation_names_event_that_caused_wrong_index() -> None:
    replica = Replica([Forgetful()], on_illegal=lambda *_: None, index_errors=INDEX_ERRORS)
    records = history(next(iter(SCENARIOS)))
    wrong = r"indexes of dispatcher are wrong after offset \d+: live is set\(\), rec"
    with pytest.raises(IndexDiverged, match=wrong):
        collections.deque(map(replica.apply, records), maxlen=0)


@pytest.mark.parametrize(("value", "found"), [("true", INDEX_ERRORS), ("false", None)])
def test_option_enables_validation(value: str, found: Callable[[Any], Any] | None) -> None:
    assert index_errors(Configuration({"debug.validate-indexes": value})) is found
