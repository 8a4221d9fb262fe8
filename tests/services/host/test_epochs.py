"""No claim exhausts the epochs of a role, and a cluster whose log has such a claim can recover."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from polling import TIMEOUT_S

from tailrace.infra.storage.storage import Storage
from tailrace.schemas.dispatcher import SubmissionsTopicChanged
from tailrace.schemas.event import EVERYONE, Event, Record
from tailrace.schemas.everyone import LeaderElected
from tailrace.schemas.types import Header
from tailrace.services.cli import main
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.configuration import Configuration
from tailrace.services.core import leadership
from tailrace.services.core.leadership import LARGEST_EPOCH, LARGEST_STEP, LeadershipState
from tailrace.services.core.replica import Replica
from tailrace.services.election.leader_election import Grant
from tailrace.services.host.grant_check import EpochOutOfReach, StaleElectionEpoch, is_claimable
from tailrace.services.host.host import Host
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.snapshots import claim_recovery
from tailrace.services.snapshots.builder import all_roles
from tailrace.services.snapshots.fingerprint import schema_fingerprint
from tailrace.services.snapshots.snapshot_file import pack
from tailrace.services.snapshots.store import SnapshotStore

from ...log_checker.events import event as checked
from ...log_checker.fencing import Fencing

LEADS = ("dispatcher", "resource_manager", "rest_server")
LARGEST = 2**63 - 1


def claim(role: str, epoch: int, count: int = 0) -> Event:
    body = LeaderElected(role=role, epoch=epoch, address=f"a{epoch}", session=f"s{epoch}")
    header = Header(
        event_id=f"{role}-{epoch}-{count}", time=1, sender=role, sender_epoch=epoch, recipient=EVERYONE
    )
    return Event(header, body)


@pytest.mark.parametrize("last", [0, 1, 2**40, LARGEST - LARGEST_STEP])
@pytest.mark.parametrize("step", [-1, 0, 1, LARGEST_STEP, LARGEST_STEP + 1])
def test_claim_is_accepted_if_epoch_is_above_last_and_within_bound(last: int, step: int) -> None:
    leaders = LeadershipState().leaders.set("dispatcher", leadership.Leader(last, "a", "s", 0))
    known = LeadershipState(leaders=leaders)
    event = claim("dispatcher", last + step)
    record = Record(1, *_parts(event))
    counts = 0 < step <= LARGEST_STEP
    assert known.accepts(record) is counts
    assert (known.evolve(record).epoch("dispatcher") == last + step) is (counts or step == 0)
    assert leadership.is_epoch_out_of_reach(known, record) is (step > LARGEST_STEP)


@pytest.mark.parametrize("is_late", [False, True])
def test_first_event_of_log_is_no_fault_if_its_writer_is_slower_than_first_leader(is_late: bool) -> None:
    leaders = {"dispatcher": leadership.Leader(1, "a", "s", 0)} if is_late else {}
    known = LeadershipState(leaders=LeadershipState().leaders.update(leaders))
    header = Header(event_id="1", time=1, sender="dispatcher", sender_epoch=0, recipient="dispatcher")
    record = Record(1, header, SubmissionsTopicChanged(topic_id="i", positions=(), reason="r"))
    assert known.accepts(record) is not is_late
    assert known.find_fault(record) is None


def _parts(event: Event) -> tuple[Header, LeaderElected]:
    assert isinstance(event.body, LeaderElected)
    return event.header, event.body


def test_masters_lead_log_that_contains_largest_epoch() -> None:
    log = MemoryEventLog()
    log.append([claim(role, LARGEST) for role in LEADS])
    for expected in (1, 2):
        host = Host(
            log,
            Replica([ResourceManager()]),
            cluster="c",
            leads=LEADS,
            process_address="a",
            session=f"s{expected}",
        )
        stop = threading.Event()
        thread = threading.Thread(target=host.run, args=(stop, {}))
        thread.start()
        try:
            assert host.leading.wait(TIMEOUT_S)
        finally:
            stop.set()
            thread.join(TIMEOUT_S)
            host.close()


def test_epoch_that_readers_ignore_is_not_claimed() -> None:
    assert is_claimable(Grant(LARGEST_STEP), LEADS, LeadershipState(), 0, "zookeeper")
    with pytest.raises(EpochOutOfReach, match=r"lower high-availability\.zookeeper\.base-epoch"):
        is_claimable(Grant(LARGEST_STEP + 1), LEADS, LeadershipState(), 0, "zookeeper")


@given(
    st.integers(1, 9),
    st.integers(0, 9),
    st.lists(st.integers(0, 9), min_size=len(LEADS), max_size=len(LEADS)),
)
def test_granted_epoch_is_claimed_exactly_if_it_is_above_all_last_ones(
    granted: int, joined_at: int, lasts: list[int]
) -> None:
    leaders = {
        role: leadership.Leader(last, "a", "s", 0) for role, last in zip(LEADS, lasts, strict=True) if last
    }
    known = LeadershipState(leaders=LeadershipState().leaders.update(leaders))
    if granted <= joined_at:
        with pytest.raises(StaleElectionEpoch):
            is_claimable(Grant(granted), LEADS, known, joined_at, "zookeeper")
    else:
        assert is_claimable(Grant(granted), LEADS, known, joined_at, "zookeeper") is (granted > max(lasts))
    assert is_claimable(Grant(), LEADS, known, joined_at, "zookeeper")


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(Storage.open(f"file://{tmp_path}/ha/c/snapshots"), "c")


def snapshot(store: SnapshotStore, log: MemoryEventLog, *, bounded: bool) -> None:
    """Returns a snapshot of the whole log. Without `bounded` it is one of a release without the bound."""
    replica = all_roles()
    last = None
    for record in log.tail(0).poll(0):
        last = record
        replica.apply(record)
        if not bounded and isinstance(record.body, LeaderElected):
            body = record.body
            leader = leadership.Leader(body.epoch, body.address, body.session, record.offset)
            known = replica.leadership
            replica.leadership = replace(known, leaders=known.leaders.set(record.body.role, leader))
    assert last is not None
    header, data = pack(
        replica,
        cluster="c",
        fingerprint=schema_fingerprint(),
        event_id=last.header.event_id,
        time=last.header.time,
    )
    store.write(header, data)


def test_recovery_command_prints_plan_and_acts_only_when_confirmed(
    tmp_path: Path,
    store: SnapshotStore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = MemoryEventLog()
    log.append([claim("dispatcher", 1), claim("resource_manager", 1)])
    snapshot(store, log, bounded=False)
    log.append([claim("dispatcher", LARGEST)])
    snapshot(store, log, bounded=False)
    monkeypatch.setattr(
        "tailrace.services.history.retention.archived_log.open_archived_log", lambda *_, **__: log
    )
    monkeypatch.setattr(
        "tailrace.services.cli.args.common_options.ClusterOptions.find",
        lambda *_: Configuration({"home": str(tmp_path), "cluster.id": "c"}),
    )
    for options, rest in ((["-o", "json"], [2, 1]), ([], [2, 1]), (["--yes"], [1]), ([], [1])):
        assert main(["cluster", "recover", *options]) == ExitCode.OK
        assert store.offsets() == rest
        events = capsys.readouterr()
        if "json" in options:
            shown = json.loads(events.out)
            assert shown["claims"] == [{"offset": 2, "role": "dispatcher", "epoch": LARGEST, "last": 1}]
            assert [item["offset"] for item in shown["snapshots"]] == [2]
        else:
            assert "offset 2: a claim of dispatcher with epoch" in events.out
    assert "continues with this log" in events.err + events.out
    assert claim_recovery.find(log, store).exhausted == ()


def test_exhausted_epochs_are_reported(store: SnapshotStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert LARGEST_EPOCH + LARGEST_STEP == LARGEST
    log = MemoryEventLog()
    log.append([claim("dispatcher", LARGEST_STEP * number) for number in range(1, 4)])
    assert claim_recovery.find(log, store).exhausted == ()
    monkeypatch.setattr(claim_recovery, "LARGEST_EPOCH", 2 * LARGEST_STEP)
    assert claim_recovery.find(log, store).exhausted == ("dispatcher",)


@given(
    claims=st.lists(
        st.tuples(
            st.sampled_from(("dispatcher", "job_master/j", "task_executor/te")),
            st.integers(1, 5) | st.integers(LARGEST_STEP - 2, LARGEST_STEP + 5) | st.integers(1, LARGEST),
        ),
        max_size=8,
    )
)
def test_checker_accepts_same_claims(claims: list[tuple[str, int]]) -> None:
    known, checker = LeadershipState(), Fencing()
    for offset, (role, epoch) in enumerate(claims):
        record = Record(offset, *_parts(claim(role, epoch)))
        header = msgspec.structs.asdict(record.header)
        event = checked(offset, LeaderElected.AVRO_NAME, header, {"role": role, "epoch": epoch})
        assert checker.accepts(event) is known.accepts(record)
        known = known.evolve(record)
        assert checker.epoch(role) == known.epoch(role)
