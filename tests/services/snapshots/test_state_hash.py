"""state_hash(log[:n]) is a function of the log: from the start, from any snapshot, in any batches, in any process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.services.core.replica import Replica
from tailrace.services.snapshots.snapshot_file import pack, unpack
from tailrace.services.snapshots.state_hash import RepeatedStateHasher, StateHasher, hash_all

from .simulated_logs import HISTORIES, create_quiet_replica, history

ROOT = Path(__file__).parents[3]


def hash_of(replica: Replica) -> str:
    return hash_all(StateHasher(replica).hashes())


def hashes_along(name: str | int) -> list[str]:
    """Yields the hash after each event, by one hasher."""
    replica = create_quiet_replica()
    hasher = RepeatedStateHasher(replica)
    results = []
    for record in history(name):
        replica.apply(record)
        results.append(hash_all(hasher.hashes()))
    return results


@pytest.mark.parametrize("name", HISTORIES)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_hash_is_the_same_from_start_and_from_any_snapshot(name: str | int, data: st.DataObject) -> None:
    log = history(name)
    cut = data.draw(st.integers(1, len(log)))
    end = data.draw(st.integers(cut, len(log)))
    whole_way, first = create_quiet_replica(), create_quiet_replica()
    for record in log[:end]:
        whole_way.apply(record)
    for record in log[:cut]:
        first.apply(record)
    header, file = pack(first, cluster="c", event_id=log[cut - 1].header.event_id, fingerprint="f", time=0)
    assert header.state_hash == hash_of(first)
    second = create_quiet_replica()
    unpack(file, cluster="c", fingerprint="f").restore(second)
    assert (second.offset, hash_of(second)) == (first.offset, header.state_hash)
    assert sorted(second.active_addresses) == sorted(first.active_addresses)
    changed = [sorted(second.apply(record)) for record in log[cut:end]]
    third = create_quiet_replica()
    for record in log[:cut]:
        third.apply(record)
    assert changed == [sorted(third.apply(record)) for record in log[cut:end]]
    assert hash_of(second) == hash_of(whole_way)
    assert second.states == whole_way.states
    assert second.leadership == whole_way.leadership


@pytest.mark.parametrize("name", HISTORIES)
def test_repeated_hash_equals_that_of_all_states(name: str | int) -> None:
    replica = create_quiet_replica()
    hasher = RepeatedStateHasher(replica)
    for place, record in enumerate(history(name)):
        replica.apply(record)
        if place % 7 == 0:
            assert hash_all(hasher.hashes()) == hash_of(replica)
    assert hash_all(hasher.hashes()) == hash_of(replica)


def test_only_change_of_state_changes_hash() -> None:
    for name in ("a_job_finishes", 1):
        replica, before, last = create_quiet_replica(), hash_of(create_quiet_replica()), None
        for record, now in zip(history(name), hashes_along(name), strict=True):
            leadership = replica.leadership
            changed = bool(replica.apply(record)) or replica.leadership != leadership
            assert changed or now == before, record
            before, last = now, record
        assert last is not None


def test_hash_is_the_same_in_other_process() -> None:
    script = (
        "from tests.services.snapshots.test_state_hash import hashes_along\n"
        "print(hashes_along('a_job_finishes')[-1], hashes_along(2)[-1])\n"
    )
    # Masters that take the lead and lose it in a simulation say so on stdout too, before.
    events = [
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        .stdout.splitlines()[-1]
        .split()
        for seed in ("1", "2")
    ]
    assert events[0] == events[1] == [hashes_along("a_job_finishes")[-1], hashes_along(2)[-1]]
