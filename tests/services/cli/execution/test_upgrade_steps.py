"""The steps of an upgrade over a model of the cluster: a command that is killed at any step and repeated ends as one
that is not; no two jobs of an upgrade run at once, and nothing is done twice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.schemas.ids import is_id
from tailrace.schemas.types import JobStatus
from tailrace.services.cli.execution.upgrade.steps import (
    ENDS,
    Decision,
    JobFacts,
    Limits,
    Step,
    Upgrade,
    decide,
    fallback_id,
    savepoint_trigger_id,
    successor_id,
)
from tailrace.services.client.client import new_job_id

OLD = "clicks-" + "0" * 32
SAVEPOINT = "file:///savepoints/savepoint-clicks-1"
NEW, BACK = successor_id(OLD, SAVEPOINT), fallback_id(OLD)
LIMITS = Limits(timeout=100, stabilization=20)
MOST_STEPS = 1_000


class Program(StrEnum):
    """How the new program behaves."""

    RUNS = "RUNS"
    FINISHES = "FINISHES"
    FAILS_A_TASK = "FAILS_A_TASK"
    FAILS_LATER = "FAILS_LATER"
    FAILS_AS_JOB = "FAILS_AS_JOB"
    NEVER_RUNS = "NEVER_RUNS"
    IS_REJECTED = "IS_REJECTED"
    DOES_NOT_FIT = "DOES_NOT_FIT"


KEPT = {Program.RUNS, Program.FINISHES, Program.FAILS_LATER}


@dataclass
class Cluster:
    """Does what it is asked for some time later. Time passes by `tick`."""

    program: Program
    delay: int
    now: int = 0
    saved: bool = False
    requests: set[str] = field(default_factory=set)
    """What it was asked for: repeated requests are one."""
    due: list[tuple[int, str]] = field(default_factory=list)
    jobs: dict[str, JobFacts] = field(default_factory=lambda: {OLD: JobFacts(OLD, JobStatus.RUNNING)})
    done: list[str] = field(default_factory=list)

    def request(self, what: str) -> None:
        """Takes a request; one that is repeated changes nothing."""
        if what not in self.requests:
            self.requests.add(what)
            self.due.append((self.now + self.delay, what))

    def tick(self) -> None:
        """Lets time pass."""
        self.now += 5
        for entry in [entry for entry in self.due if entry[0] <= self.now]:
            self.due.remove(entry)
            self._do(entry[1])
        if (job := self.jobs.get(NEW)) is not None and not job.has_ended:
            self.jobs[NEW] = self._later(job)
        live = [job_id for job_id, job in self.jobs.items() if not job.has_ended]
        assert len(live) <= 1, live

    def _do(self, what: str) -> None:
        self.done.append(what)
        match what.split():
            case ["save"]:
                self.saved = True
                self.due.append((self.now + self.delay, "end"))
            case ["end"]:
                self.jobs[OLD] = replace(self.jobs[OLD], status=JobStatus.FINISHED, ended_at=self.now)
            case ["submit", job_id]:
                running = job_id == BACK
                status = JobStatus.RUNNING if running else JobStatus.CREATED
                since = self.now if running else None
                self.jobs[job_id] = JobFacts(
                    job_id, status, submitted_at=self.now, running_since=since, runs_now=running
                )
            case ["cancel", job_id] if not self.jobs[job_id].has_ended:
                self.jobs[job_id] = replace(
                    self.jobs[job_id], status=JobStatus.CANCELED, ended_at=self.now, runs_now=False
                )

    def _later(self, job: JobFacts) -> JobFacts:
        age = self.now - job.submitted_at
        if age < 10 or self.program is Program.NEVER_RUNS:
            return job
        if self.program is Program.FAILS_AS_JOB:
            return replace(job, status=JobStatus.FAILED, ended_at=self.now, reason="no state")
        if job.running_since is None:
            job = replace(job, status=JobStatus.RUNNING, running_since=self.now, runs_now=True)
        fails_at = {Program.FAILS_A_TASK: 15, Program.FAILS_LATER: 60}.get(self.program)
        if fails_at is not None and age >= fails_at and job.failed_at is None:
            return replace(job, failed_at=self.now, last_failed_at=self.now, failure="planted")
        if self.program is Program.FINISHES and age >= 20:
            return replace(job, status=JobStatus.FINISHED, ended_at=self.now, runs_now=False)
        return job


class Command:
    """A command: it forgets what it knows when it is killed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rejection: str | None = None
        self._cancelled_because: str | None = None

    def observe(self) -> Upgrade:
        cluster = self._cluster
        successor = cluster.jobs.get(NEW)
        fits = cluster.program is not Program.DOES_NOT_FIT
        obstacle = None if successor is not None else self._rejection or (None if fits else "does not fit")
        return Upgrade(
            cluster.jobs[OLD],
            SAVEPOINT if cluster.saved else None,
            successor,
            obstacle,
            self._cancelled_because,
            cluster.jobs.get(BACK),
        )

    def step(self) -> Decision:
        """Takes the next step, and returns it."""
        cluster = self._cluster
        decision = decide(self.observe(), cluster.now, LIMITS)
        match decision.step:
            case Step.STOP:
                cluster.request("save")
            case Step.SUBMIT if cluster.program is Program.IS_REJECTED:
                self._rejection = "rejected"
            case Step.SUBMIT:
                cluster.request(f"submit {NEW}")
            case Step.CANCEL:
                cluster.request(f"cancel {NEW}")
                self._cancelled_because = decision.reason
            case Step.ROLL_BACK:
                cluster.request(f"submit {BACK}")
            case _:
                pass
        return decision


def end_of(cluster: Cluster, kills: list[bool]) -> Decision:
    """Repeats the command until it ends; `kills`: whether it is killed after each of its first steps."""
    command = Command(cluster)
    for number in range(MOST_STEPS):
        decision = command.step()
        if decision.step in ENDS:
            return decision
        if number < len(kills) and kills[number]:
            command = Command(cluster)
        cluster.tick()
    raise AssertionError(f"{cluster} does not end")


@given(st.sampled_from(Program), st.sampled_from([0, 5, 30]), st.lists(st.booleans(), max_size=60))
def test_upgrade_that_is_killed_and_repeated_ends_as_one_that_is_not(
    program: Program, delay: int, kills: list[bool]
) -> None:
    once, again = Cluster(program, delay), Cluster(program, delay)
    decision = end_of(once, [])
    assert decision.step is (Step.DONE if program in KEPT else Step.ROLLED_BACK)
    assert end_of(again, kills).step is decision.step
    assert again.done == once.done
    assert len(set(once.done)) == len(once.done)
    (live,) = [job for job in once.jobs.values() if not job.has_ended] or [once.jobs[NEW]]
    assert live.job_id == (NEW if program in KEPT else BACK)


@given(st.sampled_from(Program), st.sampled_from([0, 5, 30]), st.integers(0, 60))
def test_end_of_upgrade_is_the_same_whenever_it_is_asked_for(
    program: Program, delay: int, ticks: int
) -> None:
    cluster = Cluster(program, delay)
    decision = end_of(cluster, [])
    for _ in range(ticks):
        cluster.tick()
    assert Command(cluster).step().step is decision.step
    assert not cluster.due


@pytest.mark.parametrize("program", sorted(set(Program) - KEPT))
def test_program_that_is_not_stable_is_left_as_it_is_without_rollback(program: Program) -> None:
    cluster, limits = Cluster(program, 5), replace(LIMITS, rolls_back=False)
    command = Command(cluster)
    while (decision := decide(command.observe(), cluster.now, limits)).step not in ENDS:
        command.step()
        cluster.tick()
    assert decision.step is Step.GIVE_UP
    assert decision.reason
    assert f"cancel {NEW}" not in cluster.done
    assert BACK not in cluster.jobs


@pytest.mark.parametrize("status", [JobStatus.CANCELED, JobStatus.FAILED, JobStatus.FINISHED])
def test_job_that_ended_without_savepoint_is_not_upgraded(status: JobStatus) -> None:
    decision = decide(Upgrade(JobFacts(OLD, status)), 0, LIMITS)
    assert decision.step is Step.GIVE_UP
    assert "no savepoint" in decision.reason


def test_job_that_recovered_while_nobody_watched_it_is_kept() -> None:
    failed = JobFacts(
        NEW, JobStatus.RUNNING, 0, running_since=10, failed_at=15, last_failed_at=15, runs_now=True
    )
    seen = Upgrade(JobFacts(OLD, JobStatus.FINISHED), SAVEPOINT, failed)
    assert decide(seen, 16, LIMITS).step is Step.CANCEL
    assert decide(seen, 15 + LIMITS.timeout, LIMITS).step is Step.DONE
    again = replace(seen, successor=replace(failed, runs_now=False))
    assert decide(again, 15 + LIMITS.timeout, LIMITS).step is Step.CANCEL


def test_old_program_that_does_not_run_either_ends_upgrade() -> None:
    ended = JobFacts(OLD, JobStatus.FINISHED)
    new = JobFacts(NEW, JobStatus.FAILED, ended_at=5, reason="no state")
    back = JobFacts(BACK, JobStatus.FAILED, ended_at=9, reason="no slots")
    decision = decide(Upgrade(ended, SAVEPOINT, new, fallback=back), 10, LIMITS)
    assert (decision.step, "no state" in decision.reason, "no slots" in decision.reason) == (
        Step.GIVE_UP,
        True,
        True,
    )


@given(st.text(max_size=30), st.sampled_from(["", "payments"]))
def test_ids_are_valid_and_follow_from_old_job_and_savepoint(name: str, tenant: str) -> None:
    old = new_job_id(name, tenant)
    derived = [successor_id(old, "a"), successor_id(old, "b"), fallback_id(old)]
    assert len({*derived, old}) == 4
    for each in derived:
        assert is_id(each)
        assert each[:-32] == old[:-32]
    assert derived == [successor_id(old, "a"), successor_id(old, "b"), fallback_id(old)]
    assert is_id(successor_id("x" * 64, "a"))
    assert len(savepoint_trigger_id(old)) == 32
