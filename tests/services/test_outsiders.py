"""What an outsider writes to the log changes nothing: every reader ignores an event that no process can have sent."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.schemas import released
from tailrace.schemas.body import Body
from tailrace.schemas.catalog import EVENTS, SENDERS
from tailrace.schemas.event import EVERYONE, Event, Record
from tailrace.schemas.feature_level import FEATURE_LEVEL
from tailrace.schemas.types import Header
from tailrace.services.core.event_senders import is_address
from tailrace.services.core.leadership import LeadershipState
from tailrace.services.core.replica import Replica
from tailrace.services.history.replay import DecisionCheck

from ..schemas.strategies import instances
from .false_headers import ADDRESSES, MALFORMED, draw_false_event, false_events
from .simulated_cluster.cluster import new_replica
from .simulated_cluster.invariants import violations
from .test_properties import LOGS, log_of

PLACES = 10


def reporting(reported: list[tuple[int, str]]) -> Replica:
    """Returns a replica of all roles that lists the events it reports."""
    return new_replica(
        on_illegal=lambda *_: None, on_false_header=lambda record, why: reported.append((record.offset, why))
    )


def content_of(replica: Replica) -> tuple[dict[str, Any], LeadershipState]:
    return dict(replica.states), replica.leadership


@pytest.mark.parametrize("name", LOGS)
def test_states_are_those_without_events_of_outsider(name: str | int) -> None:
    """The false events have the offsets of the true ones that follow: the log may have gaps, so states are equal."""
    log, reported = log_of(name), list[tuple[int, str]]()
    draw, truth, attacked = random.Random(str(name)), reporting([]), reporting(reported)
    places = {draw.randrange(len(log)) for _ in range(PLACES)} if len(log) > PLACES else set(range(len(log)))
    forged = 0
    for record in log:
        if record.offset in places:
            # A copy of an event before or after this place.
            copied = draw.choice(log)
            before = content_of(attacked)
            event = Event(copied.header, copied.body)
            for false in false_events(event, attacked.leadership, record.offset):
                assert attacked.apply(Record(record.offset, false.header, false.body)) == []
                assert content_of(attacked) == before
                assert not attacked.accepts(Record(record.offset, false.header, false.body))
                forged += 1
        truth.apply(record)
        attacked.apply(record)
    assert content_of(attacked) == content_of(truth)
    assert forged > PLACES
    assert len(reported) == forged


@pytest.mark.parametrize("body", [EVENTS[name] for name in sorted(EVENTS)])
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), seed=st.integers(0, 99))
def test_false_event_of_every_type_is_reported_and_changes_nothing(
    body: type[Body], data: st.DataObject, seed: int
) -> None:
    reported = list[tuple[int, str]]()
    replica, draw = reporting(reported), random.Random(seed)
    for record in log_of("a_job_finishes")[: draw.randrange(5, 40)]:
        replica.apply(record)
    offset, before = replica.offset + 1, content_of(replica)
    header = Header(event_id="e", time=1, sender=draw.choice(ADDRESSES), sender_epoch=1, recipient=EVERYONE)
    event = Event(header, data.draw(instances(body)))
    for _ in range(10):
        false = draw_false_event(draw, event, replica.leadership, offset)
        assert replica.apply(Record(offset, false.header, false.body)) == []
        assert content_of(replica) == before
    assert len(reported) == 10


@pytest.mark.parametrize("name", LOGS)
def test_decisions_are_recomputed_equally_beside_events_of_outsider(name: str | int) -> None:
    log, draw, check = (
        log_of(name),
        random.Random(str(name)),
        DecisionCheck(new_replica(on_illegal=lambda *_: None)),
    )
    for record in log:
        if draw.random() < 0.3:
            copied = draw.choice(log)
            event = Event(copied.header, copied.body)
            false = draw_false_event(draw, event, check.replica.leadership, record.offset)
            assert list(check.check_all([Record(record.offset, false.header, false.body)])) == []
        assert [difference.line() for difference in check.check_all([record])] == []
    check.finish()
    assert check.counts.decided > 0


@pytest.mark.parametrize("name", LOGS)
def test_true_events_are_never_reported(name: str | int) -> None:
    """Events of deposed leaders and claims that lost an election are fenced: that is normal."""
    reported = list[tuple[int, str]]()
    replica = reporting(reported)
    for record in log_of(name):
        replica.apply(record)
    assert reported == []
    assert violations(log_of(name), settled=False) == []


def test_late_event_of_deposed_leader_is_fenced_and_not_reported() -> None:
    reported = list[tuple[int, str]]()
    replica = reporting(reported)
    log = log_of("an_old_leader_goes_on_talking")
    epochs = set()
    for record in log:
        replica.apply(record)
        epochs.add(record.header.sender_epoch)
    assert len(epochs) > 1
    assert reported == []


def test_addresses() -> None:
    assert all(map(is_address, ADDRESSES))
    assert not any(map(is_address, MALFORMED))


def test_every_event_has_senders_and_unknown_one_none() -> None:
    assert set(SENDERS) == set(EVENTS.values())
    assert all(SENDERS.values())


def test_checker_accepts_log_with_events_of_outsider_only_if_told() -> None:
    log = log_of("a_job_finishes")
    draw, leadership, attacked = random.Random(1), LeadershipState(), list[Record]()
    for record in log:
        leadership = leadership.evolve(record)
    place = len(log)
    for _ in range(20):
        copied = draw.choice(log)
        false = draw_false_event(draw, Event(copied.header, copied.body), leadership, place)
        attacked.append(Record(place, replace(false.header, event_id=f"o{place}"), false.body))
        place += 1
    assert violations((*log, *attacked), settled=False, outsiders=True) == []
    assert violations((*log, *attacked), settled=False) != []


def test_table_of_level_is_that_of_its_first_release() -> None:
    first = released.senders(released.first_release_of(FEATURE_LEVEL))
    own = {body.AVRO_NAME: kinds for body, kinds in SENDERS.items()}
    assert {name: own.get(name) for name in first} == dict(first)
