"""The file of a snapshot: an intact file is read back unchanged, and no other file is read at all."""

from __future__ import annotations

import functools
import hashlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.services.core.feature_level import FEATURE_LEVEL, UnknownFeatureLevel
from tailrace.services.core.leadership import LeadershipState
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


def test_file_describes_itself() -> None:
    header = read(file()).header
    assert (header.cluster, header.event_id, header.time) == ("c", "e", 5)
    assert header.offset == len(history("a_job_finishes")) - 1


def test_same_states_give_same_file() -> None:
    replica = create_quiet_replica()
    read(file()).restore(replica)
    again = pack(replica, cluster="c", event_id="e", fingerprint=schema_fingerprint(), time=5)[1]
    assert again == file()


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_truncated_file_is_rejected(data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(file()) - 1))
    with pytest.raises(UnusableSnapshot):
        read(file()[:length])


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_file_with_flipped_bit_is_rejected(data: st.DataObject) -> None:
    at, bit = data.draw(st.integers(0, len(file()) - 1)), data.draw(st.integers(0, 7))
    damaged = bytearray(file())
    damaged[at] ^= 1 << bit
    with pytest.raises(UnusableSnapshot):
        read(bytes(damaged))


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1 << 32), length=st.integers(0, 3_000))
def test_forged_file_with_valid_checksum_is_rejected(seed: int, length: int) -> None:
    body = file()[: len(file()) // 4] + random.Random(seed).randbytes(length)
    with pytest.raises(UnusableSnapshot):
        read(body + hashlib.sha256(body).digest())


def test_snapshot_of_other_cluster_is_rejected() -> None:
    with pytest.raises(UnusableSnapshot, match="it belongs to cluster 'c'"):
        read(file(), cluster="d")


def test_snapshot_of_other_types_is_migrated() -> None:
    replica = create_quiet_replica()
    read(file(), fingerprint="ffff").restore(replica)
    assert hash_all(StateHasher(replica).hashes()) == read(file()).header.state_hash


def test_snapshot_of_newer_release_is_rejected() -> None:
    replica = create_quiet_replica()
    data = pack(replica, cluster="c", event_id="e", fingerprint="f", time=5, release="9.0.0", migrations=99)[
        1
    ]
    with pytest.raises(UnusableSnapshot, match=r"release 9\.0\.0 wrote it, which is newer than"):
        read(data)


def test_snapshot_at_unknown_feature_level_stops_process() -> None:
    replica = create_quiet_replica()
    replica.leadership = LeadershipState(feature_level=FEATURE_LEVEL + 1)
    data = pack(replica, cluster="c", event_id="e", fingerprint=schema_fingerprint(), time=5)[1]
    with pytest.raises(
        UnknownFeatureLevel, match=rf"feature level {FEATURE_LEVEL + 1} in the snapshot of offset -1"
    ):
        read(data).restore(create_quiet_replica())


def test_process_reads_only_states_that_it_serves() -> None:
    some = Replica([Dispatcher()])
    read(file()).restore(some)
    assert list(some.states) == ["dispatcher"]
    everything = create_quiet_replica()
    read(file()).restore(everything)
    assert hash_all(StateHasher(everything).hashes()) == read(file()).header.state_hash
    assert some.states["dispatcher"] == everything.states["dispatcher"]
