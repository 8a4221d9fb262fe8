"""A snapshot's file: what is whole is read as it was, and nothing else is read at all."""

from __future__ import annotations

import functools
import hashlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.services.core.replica import Replica
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.snapshots.fingerprint import schema_fingerprint
from tailrace.services.snapshots.snapshot_file import Snapshot, UnusableSnapshot, pack, unpack
from tailrace.services.snapshots.state_hash import StateHasher, hash_all

from .simulated_logs import create_quiet_replica, history


@functools.cache
def file() -> bytes:
    replica = create_quiet_replica()
    for record in history("a_job_finishes"):
        replica.apply(record)
    return pack(replica, cluster="c", event_id="e", fingerprint=schema_fingerprint(), time=5)[1]


def read(data: bytes, cluster: str = "c", fingerprint: str | None = None) -> Snapshot:
    return unpack(data, cluster=cluster, fingerprint=fingerprint or schema_fingerprint())


def test_it_says_what_it_is() -> None:
    header = read(file()).header
    assert (header.cluster, header.event_id, header.time) == ("c", "e", 5)
    assert header.offset == len(history("a_job_finishes")) - 1


def test_the_same_states_are_the_same_file() -> None:
    replica = create_quiet_replica()
    read(file()).restore(replica)
    again = pack(replica, cluster="c", event_id="e", fingerprint=schema_fingerprint(), time=5)[1]
    assert again == file()


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_file_that_is_torn_anywhere_is_refused(data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(file()) - 1))
    with pytest.raises(UnusableSnapshot):
        read(file()[:length])


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_file_of_which_any_bit_is_wrong_is_refused(data: st.DataObject) -> None:
    at, bit = data.draw(st.integers(0, len(file()) - 1)), data.draw(st.integers(0, 7))
    damaged = bytearray(file())
    damaged[at] ^= 1 << bit
    with pytest.raises(UnusableSnapshot):
        read(bytes(damaged))


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1 << 32), length=st.integers(0, 3_000))
def test_what_somebody_else_made_up_is_refused_whatever_its_sum_says(seed: int, length: int) -> None:
    body = file()[: len(file()) // 4] + random.Random(seed).randbytes(length)
    with pytest.raises(UnusableSnapshot):
        read(body + hashlib.sha256(body).digest())


def test_the_snapshot_of_another_cluster_is_refused() -> None:
    with pytest.raises(UnusableSnapshot, match="it is of cluster 'c'"):
        read(file(), cluster="d")


def test_the_snapshot_of_other_types_is_refused() -> None:
    with pytest.raises(
        UnusableSnapshot, match=r"other types of states \(fingerprint [0-9a-f]{16}, not ffff\)"
    ):
        read(file(), fingerprint="ffff")


def test_a_process_reads_the_states_that_it_serves() -> None:
    some = Replica([Dispatcher()])
    read(file()).restore(some)
    assert list(some.states) == ["dispatcher"]
    everything = create_quiet_replica()
    read(file()).restore(everything)
    assert hash_all(StateHasher(everything).hashes()) == read(file()).header.state_hash
    assert some.states["dispatcher"] == everything.states["dispatcher"]
