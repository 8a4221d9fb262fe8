"""The laws of an election, which hold whoever elects: ZooKeeper, or Kubernetes by Leases."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from polling import wait_until

from tailrace.services.election.kafka_liveness_monitor import KafkaState
from tailrace.services.election.lease import uptime

from .electorates import Electorate
from .masters import Candidacy, information_of

pytestmark = pytest.mark.integration


def enter(electorate: Electorate, *masters: Candidacy) -> None:
    """Lets the masters join the election, one after the other."""
    for count, master in enumerate(masters, start=1):
        master.join()
        wait_until(partial(has_candidates, electorate, count))


def has_candidates(electorate: Electorate, count: int) -> bool:
    return len(electorate.candidates()) == count


def epoch_after_return(leader: Candidacy, other: Candidacy) -> int:
    """Lets the leader return its grant, and returns the epoch of the other candidate.

    On a busy machine the other one may ask so late that the leader is elected once more; it returns that grant, too.
    """

    def look() -> int | None:
        if leader.granted:
            leader.rejoin()
        return other.granted

    return wait_until(look, f"{other.address} is granted leadership")


def test_one_candidate_is_elected_and_another_one_when_it_leaves(electorate: Electorate) -> None:
    standing = [electorate.master() for _ in range(4)]
    enter(electorate, *standing)
    epochs = []
    while standing:
        leader = wait_until(lambda: next((master for master in standing if master.granted), None))
        standing.remove(leader)
        epochs.append(leader.epoch())
        wait_until(leader.believes)
        assert electorate.epoch() == epochs[-1]
        assert not any(master.granted for master in standing)
        leader.close()
        assert not leader.granted
        assert leader.is_suspended
    assert epochs == sorted(set(epochs))


def test_grant_is_the_same_until_next_term(electorate: Electorate) -> None:
    master = electorate.master()
    master.join()
    master.epoch()
    before = master.grant
    master.join()
    master.confirm_leadership(3)
    assert master.grant == before
    master.rejoin()
    assert master.grant is None
    assert before is not None
    assert before.epoch is not None
    assert master.epoch() > before.epoch


def test_master_that_returns_its_grant_is_replaced(electorate: Electorate) -> None:
    one, other = electorate.master(), electorate.master()
    enter(electorate, one)
    first = one.epoch()
    enter(electorate, one, other)
    one.rejoin()
    assert one.grant is None
    second = epoch_after_return(one, other)
    # In ZooKeeper the one is a candidate again before the other returns its grant, or the other is elected once more.
    wait_until(lambda: electorate.candidates() == [other.address, one.address])
    third = epoch_after_return(other, one)
    assert first < second < third


def test_master_without_answer_from_kafka_is_no_candidate(electorate: Electorate) -> None:
    one, other = electorate.master(), electorate.master()
    enter(electorate, one)
    first = one.leads()
    enter(electorate, one, other)
    one.on_kafka_state(KafkaState.DOUBTFUL)
    assert one.is_suspended
    assert one.granted == first
    one.on_kafka_state(KafkaState.SILENT)
    assert one.grant is None
    assert one.is_suspended
    second = other.leads()
    wait_until(partial(has_candidates, electorate, 1))
    one.rejoin()
    one.confirm_leadership(first)
    one.on_kafka_state(KafkaState.ANSWERS)
    wait_until(partial(has_candidates, electorate, 2))
    wait_until(lambda: not one.is_suspended)
    assert not one.granted
    other.close()
    assert first < second < one.epoch()


def test_leader_is_published_when_confirmed_and_removed_when_it_leaves(electorate: Electorate) -> None:
    one, other = electorate.master(), electorate.master()
    enter(electorate, one)
    epoch = one.epoch()
    enter(electorate, one, other)
    other.confirm_leadership(1)
    assert electorate.published() is None
    one.confirm_leadership(epoch)
    wait_until(electorate.published)
    assert electorate.published() == msgspec.structs.replace(information_of(one.address), epoch=epoch)
    one.rejoin()
    wait_until(lambda: electorate.published() is None)
    epoch = epoch_after_return(one, other)
    other.confirm_leadership(epoch)
    wait_until(electorate.published)
    assert electorate.published() == msgspec.structs.replace(information_of(other.address), epoch=epoch)


def test_leader_that_somebody_deposes_steps_down_and_next_epoch_is_higher(electorate: Electorate) -> None:
    one, other = electorate.master(), electorate.master()
    enter(electorate, one)
    first = one.leads()
    enter(electorate, one, other)
    electorate.depose()
    wait_until(lambda: one.granted != first)
    second = wait_until(lambda: one.granted or other.granted)
    assert second > first
    assert electorate.epoch() == second


def test_disconnected_master_that_returns_in_time_keeps_its_epoch(electorate: Electorate) -> None:
    with electorate.link() as link:
        one, other = electorate.master(term_s=12.0, link=link), electorate.master(term_s=12.0)
        enter(electorate, one)
        epoch = one.leads()
        enter(electorate, one, other)
        link.sever()
        wait_until(lambda: one.is_suspended)
        assert one.granted == epoch
        link.heal()
        wait_until(one.believes)
        assert one.granted == epoch
        assert not other.granted
        one.close()


@pytest.mark.parametrize("how", ["severed", "cut"])
def test_disconnected_master_stops_deciding_before_successor_is_elected(
    how: str, electorate: Electorate
) -> None:
    with electorate.link() as link:
        one, other = electorate.master(term_s=3.0, link=link), electorate.master(term_s=3.0)
        one.join()
        first = one.leads()
        enter(electorate, one, other)
        link.sever() if how == "severed" else link.cut()
        while one.believes():
            followed = bool(other.granted)
            assert not (followed and one.believes())
        wait_until(lambda: not one.granted)
        second = other.epoch()
        link.heal()
        wait_until(lambda: not one.is_suspended)
        assert not one.granted
        assert second > first
        other.close()
        assert one.epoch() > second
        one.close()


def test_killed_process_is_replaced(electorate: Electorate) -> None:
    with electorate.other_process("first:1", term_s=3.0) as first:
        wait_until(lambda: first.deciding)
        with electorate.other_process("second:1", term_s=3.0) as second:
            wait_until(partial(has_candidates, electorate, 2))
            killed = first.kill()
            wait_until(lambda: second.deciding)
            assert second.epoch is not None
            assert first.epoch is not None
            assert second.epoch > first.epoch
            assert second.sights[-1].time > killed


def test_closed_process_is_replaced_at_once(electorate: Electorate) -> None:
    with electorate.other_process("first:1", term_s=300.0) as first:
        wait_until(lambda: first.deciding)
        with electorate.other_process("second:1", term_s=300.0) as second:
            wait_until(partial(has_candidates, electorate, 2))
            first.end()
            wait_until(lambda: second.deciding)


def test_process_stopped_for_longer_than_its_term_resumes_without_grants(electorate: Electorate) -> None:
    with electorate.other_process("first:1", term_s=2.0) as first:
        wait_until(lambda: first.deciding)
        with electorate.other_process("second:1", term_s=2.0) as second:
            wait_until(partial(has_candidates, electorate, 2))
            epoch, stopped = first.epoch, first.pause()
            wait_until(lambda: second.deciding)
            followed = second.sights[-1].time
            first.resume()
            wait_until(lambda: first.sights[-1].time > followed and not first.sights[-1].is_suspended)
            assert first.epoch is None
            believed_until = next(sight.time for sight in first.sights if sight.time > stopped)
            assert believed_until > stopped
            assert not any(
                sight.epoch == epoch and not sight.is_suspended
                for sight in first.sights
                if sight.time > followed
            )
            assert second.deciding


def test_process_stopped_for_less_than_its_term_keeps_epoch(electorate: Electorate) -> None:
    with electorate.other_process("first:1") as first:
        wait_until(lambda: first.deciding)
        epoch = first.epoch
        stopped = first.pause()
        with electorate.other_process("second:1") as second:
            wait_until(
                lambda: uptime() > stopped + 1.5 and second.sights and not second.sights[-1].is_suspended
            )
            first.resume()
            wait_until(partial(has_candidates, electorate, 2))
            assert first.deciding == epoch
            assert second.epoch is None
