"""When masters stand for jobs: not on the way of a submission, and not all at the same moment."""

from __future__ import annotations

import itertools
from collections import Counter

from tailrace.schemas import dispatcher
from tailrace.services.host.election_participant import ElectionParticipant

from ..scripted_election import GivenMandates
from ..simulated_cluster.cluster import SECOND, Cluster

STANDBYS = ("b", "c", "d")
JOBS = 60


class Election:
    """Of all jobs: who stands for one first leads it, as with ZooKeeper. `opposed`: Candidacy's."""

    def __init__(self, cluster: Cluster, *, opposed: bool = True) -> None:
        self.cluster = cluster
        self.now = 0
        self.leaders: dict[str, str] = {}
        self.mandates = {name: GivenMandates() for name in STANDBYS}
        self.masters = {
            name: ElectionParticipant(
                mandates,
                cluster.replica,
                ("dispatcher",),
                session=name,
                opposed=opposed,
                clock=lambda: self.now,
            )
            for name, mandates in self.mandates.items()
        }
        for each in self.masters.values():
            each.start()

    def goes_on(self, seconds: float) -> None:
        """Everybody is on time."""
        end = self.now + int(seconds * SECOND)
        while self.now <= end:
            for name, each in self.masters.items():
                each.tick()
                for role in self.mandates[name].stands:
                    self.leaders.setdefault(role, name)
            dues = [due for each in self.masters.values() if (due := each.next_deadline()) is not None]
            self.now = min([end + 1, *dues])


def with_jobs() -> Cluster:
    cluster = Cluster()
    cluster.start_master()
    for number in range(JOBS):
        cluster.submit(f"j{number}")
    cluster.settle()
    return cluster


def test_jobs_of_a_master_that_is_gone_spread_over_those_that_are_left() -> None:
    cluster = with_jobs()
    cluster.start_master()
    election = Election(cluster)
    assert set(election.mandates["b"].stands) == {"dispatcher"}
    election.goes_on(0.5)
    shares = Counter(leader for role, leader in election.leaders.items() if role != "dispatcher")
    assert sum(shares.values()) == JOBS
    assert set(shares) == set(STANDBYS)
    assert min(shares.values()) > JOBS / len(STANDBYS) / 2
    # In the end all stand for all.
    assert {len(each.stands) for each in election.mandates.values()} == {JOBS + 1}
    assert {each.next_deadline() for each in election.masters.values()} == {None}


def test_nobody_stands_for_jobs_of_a_leader_that_goes_on() -> None:
    election = Election(with_jobs())
    election.goes_on(10)
    assert {tuple(each.stands) for each in election.mandates.values()} == {("dispatcher",)}


def test_who_has_begun_many_jobs_at_once_stands_for_one_after_the_other() -> None:
    cluster = with_jobs()
    leader = cluster.replica.leadership.leader("dispatcher")
    assert leader is not None
    now, mandates = 0, GivenMandates()
    master = ElectionParticipant(
        mandates,
        cluster.replica,
        ("dispatcher",),
        session=leader.session,
        opposed=True,
        clock=lambda: now,
    )
    master.start()
    dues = []
    while (due := master.next_deadline()) is not None:
        dues.append(due)
        now = due
        master.on_state_changed("job_master/j1")
        master.tick()
        assert len(mandates.stands) == len(dues) + 1
    assert dues[0] == SECOND
    assert {later - earlier for earlier, later in itertools.pairwise(dues)} == {SECOND // 4}
    assert len(dues) == JOBS


def test_without_opponents_a_claimed_job_is_led_at_once() -> None:
    cluster = with_jobs()
    cluster.lead("job_master/j1")
    election = Election(cluster, opposed=False)
    assert {tuple(each.stands) for each in election.mandates.values()} == {("dispatcher", "job_master/j1")}


def test_who_waits_for_its_moment_does_not_wait_longer_because_more_is_heard_of_the_job() -> None:
    cluster = with_jobs()
    cluster.start_master()
    election = Election(cluster)
    for _ in range(6):
        election.goes_on(0.1)
        for each in election.masters.values():
            each.on_state_changed("job_master/j1")
    assert all("job_master/j1" in each.stands for each in election.mandates.values())


def test_a_job_that_has_ended_meanwhile_is_not_stood_for() -> None:
    cluster = with_jobs()
    cluster.start_master()
    election = Election(cluster)
    for number in range(JOBS):
        cluster.say("client/x", "dispatcher", dispatcher.CancelJob(job_id=f"j{number}"))
    cluster.settle()
    for number in range(JOBS):
        for each in election.masters.values():
            assert each.on_state_changed(f"job_master/j{number}")
    election.goes_on(1)
    assert {tuple(each.stands) for each in election.mandates.values()} == {("dispatcher",)}
