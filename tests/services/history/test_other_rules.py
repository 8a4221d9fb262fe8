"""Folding does not depend on what a release decides by: its verdicts, options and limits.

All golden logs and random histories are folded with other ones, and come to the same states after each event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import other_rules
import pytest
from msgspec.structs import replace

from tailrace.schemas.event import Record
from tailrace.services.configuration.role_options import (
    DispatcherOptions,
    JobOptions,
    ResourceManagerOptions,
    TaskExecutorOptions,
)
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.job_master import JobMaster, status_changes
from tailrace.services.job_master.checkpoints import state as checkpoint_state
from tailrace.services.job_master.state import JobMasterState, StartedJob
from tailrace.services.log.event_log import read_to_end

from ..snapshots.simulated_logs import WALKS, create_quiet_replica, history

GOLDEN = Path(__file__).parents[2] / "golden"
FILES = sorted(path.relative_to(GOLDEN).as_posix() for path in GOLDEN.glob("*/*.avro"))
NAMES = [*FILES, *range(len(WALKS), len(WALKS) + 3)]
"""The golden logs, and seeds of more random histories."""
_OPTIONS = (DispatcherOptions, JobOptions, ResourceManagerOptions, TaskExecutorOptions)


def read(name: str | int) -> Sequence[Record]:
    if isinstance(name, int):
        return history(name)
    log = FileLog.open(GOLDEN / name)
    try:
        return [record for batch in read_to_end(log) for record in batch]
    finally:
        log.close()


def without_options(state: Any) -> Any:
    """Returns a state without the options that it has read from the log."""
    for name in getattr(state, "__struct_fields__", ()):
        value = getattr(state, name)
        if isinstance(value, _OPTIONS):
            state = replace(state, **{name: type(value)()})
        elif name == "registration":
            state = replace(state, **{name: without_options(value)})
    return state


def states(records: Sequence[Record]) -> Iterator[tuple[int, str, Any]]:
    """Returns the states that each event changes."""
    replica = create_quiet_replica()
    for record in records:
        for address in replica.apply(record):
            yield record.offset, address, without_options(replica.states[address])


@pytest.mark.parametrize("name", NAMES)
def test_fold_takes_no_verdict_and_uses_no_option(name: str | int) -> None:
    records = read(name)
    expected = [*states(records)]
    with other_rules.no_judgements(), other_rules.other_options():
        assert [*states(records)] == expected


@pytest.mark.parametrize("name", NAMES)
def test_fold_uses_fixed_limits_only(name: str | int) -> None:
    records = read(name)
    expected = [*states(records)]
    with other_rules.other_limits():
        assert [*states(records)] == expected


def uses_option(state: StartedJob) -> StartedJob:
    return replace(state, cause=state.options.slot_idle_timeout)


def takes_verdict(state: StartedJob) -> StartedJob:
    return replace(state, requested=status_changes.due_change(state))


def uses_limit(state: StartedJob) -> StartedJob:
    return replace(state, cause=checkpoint_state.MOST_REQUESTS)


@pytest.mark.parametrize("judge", [uses_option, takes_verdict, uses_limit])
def test_planted_judgement_is_found(judge: Callable[[StartedJob], StartedJob]) -> None:
    records, evolve = read(FILES[0]), JobMaster.evolve

    def evolve_and_judge(role: JobMaster, state: JobMasterState, record: Record) -> JobMasterState:
        after = evolve(role, state, record)
        return judge(after) if isinstance(after, StartedJob) else after

    with mock.patch.object(JobMaster, "evolve", evolve_and_judge):
        expected = [*states(records)]
        with pytest.raises(AssertionError), other_rules.no_judgements(), other_rules.other_options():
            with other_rules.other_limits():
                assert [*states(records)] == expected


def test_fixed_limits_have_their_values() -> None:
    """They may change with a feature level only."""
    found = other_rules.limits()
    assert {key: getattr(*found[key][0]) for key in other_rules.FIXED} == other_rules.FIXED
