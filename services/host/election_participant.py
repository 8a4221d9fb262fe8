"""Decides which elections a process joins, and whether a grant may be claimed in the log.

A process joins the elections for its own roles at start-up. It joins the election for a job later, to keep ZooKeeper
out of job submission: the Dispatcher's leader leads unclaimed jobs implicitly, and joins a job's election once the job
has run for a moment, one job after the other. Short jobs never reach ZooKeeper, and many jobs that start at once do not
wait for each other's latches. Other masters join a job's election once the Dispatcher has a later leader than the one
that started the job, or once a process has claimed the job. No process joins the election for a quiescent job.

Many masters learn of many new jobs at the same moment, and the fastest would win all elections. Each master therefore
waits for a short time that depends on the job and the master. This spreads the leaders, and their successors, over the
masters.

The epoch of a grant is the creation zxid of the election node. A grant whose epoch is not above the log's may be late:
another process was elected in between. The process then returns it and joins again, to get a later one. If the epoch is
too low although the process joined after it had read the log's epoch, then ZooKeeper lost its data or is another
ensemble. This is detected for the process's own roles (StaleElectionEpoch).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...infra.logging_setup import logger
from ..core.deadline_heap import DeadlineHeap
from ..core.leadership import LARGEST_STEP, Leader
from ..core.replica import Replica
from ..core.role import DISPATCHER, JOB_MASTER, Clock, Time, derive_id, kind_of
from ..election.leader_election import LeaderElection
from ..job_master.state import JobMasterState

_log = logger(__name__)
_A_MOMENT = 1_000_000
_BETWEEN_OWN = 250_000
_SPREAD = 500_000
"""In microseconds."""


class StaleElectionEpoch(Exception):
    """ZooKeeper's transaction ids are below the log's epochs: ZooKeeper lost its data, or it is another ensemble."""

    def __init__(self, role: str, granted: int, last: int) -> None:
        super().__init__(
            f"ZooKeeper grants {role} the epoch {granted}, but the log has {last}: ZooKeeper's data were lost, or the "
            "log was led without ZooKeeper or with another one; set high-availability.zookeeper.base-epoch to "
            f"{last} or more, the same in all jobmanagers"
        )


class EpochOutOfReach(Exception):
    """ZooKeeper's transaction ids are so far above the log's epochs that readers would ignore the claim."""

    def __init__(self, role: str, granted: int, last: int) -> None:
        super().__init__(
            f"ZooKeeper grants {role} the epoch {granted}, but the log has {last}, and takes at most {LARGEST_STEP} "
            "more: lower high-availability.zookeeper.base-epoch, the same in all jobmanagers"
        )


class ElectedLeaderExists(Exception):
    """Elected masters lead or may lead again. A process without an election would take the leadership from them."""

    def __init__(self, role: str, leader: Leader) -> None:
        by = leader.elected_by
        super().__init__(
            f"{leader.address}, elected by {by}, was the last to lead {role}: with high-availability.type none this "
            f"process would take the lead from masters that may still run; set high-availability.type to {by} as they "
            "have it, or end the cluster with `tailrace cluster stop` first; if none of them runs any more, set "
            "high-availability.abandon-election to true"
        )


class ElectionParticipant:
    """The elections of one process; used on the host's thread. `opposed`: whether other candidates exist at all."""

    def __init__(
        self,
        election: LeaderElection,
        replica: Replica,
        roles: Iterable[str],
        *,
        session: str,
        opposed: bool,
        clock: Clock,
    ) -> None:
        self._election = election
        self._replica = replica
        self._roles = tuple(roles)
        self._session = session
        self._opposed = opposed
        self._clock = clock
        self._leads_jobs = DISPATCHER in self._roles
        self._stood: dict[str, int] = {}
        """The roles whose election it has joined -> the log's epoch at that time."""
        self._spent: dict[str, int] = {}
        """The last returned grant of a role. The election may still report it for a while."""
        self._soon = DeadlineHeap()
        """The times at which to join the elections of jobs."""
        self._last_own: Time = 0
        """The latest time at which to join the election of a job that this process started."""
        self._begun = False

    def start(self) -> None:
        """Joins all elections that it has to. Called once the log has been read."""
        self._begun = True
        for role in self._roles:
            self._join(role)
        self._check_all_jobs()

    def tick(self) -> None:
        """Joins the elections of the jobs that are due. Call it at `next_deadline`; earlier calls are harmless."""
        if self._soon.earliest() is not None:
            for job in self._soon.pop_expired(self._clock()):
                self._join(job)

    def next_deadline(self) -> Time | None:
        """Returns when to join the next job's election, or None."""
        return self._soon.earliest()

    def on_leader_elected(self, role: str) -> None:
        """Records that the log has a new leader of the role."""
        if not self._begun:
            return
        if role == DISPATCHER:
            self._check_all_jobs()
        else:
            self.on_state_changed(role)

    def next_join(self, job: str) -> Time | None:
        """Returns when to join the election of a job; None: not planned."""
        return self._soon.get(job)

    def on_state_changed(self, role_address: str) -> bool:
        """Processes a changed state; returns whether the address is a job that is quiescent now."""
        if not self._begun or not self._leads_jobs or kind_of(role_address) != JOB_MASTER:
            return False
        if self._replica.is_active(role_address):
            if role_address not in self._stood:
                self._consider(role_address)
            return False
        self._soon.set(role_address, None)
        if self._stood.pop(role_address, None) is not None:
            self._spent.pop(role_address, None)
            leader = self._replica.leadership.leader(role_address)
            mine = leader is not None and leader.session == self._session
            self._election.leave(role_address, for_ever=mine)
        return True

    def is_valid(self, role: str, granted: int | None) -> bool:
        """Returns whether a grant may be claimed now; rejoins the election if the grant is too late. Raises
        StaleElectionEpoch, EpochOutOfReach."""
        stood = self._stood.get(role)
        if stood is None:
            # The election has not yet processed that this process left.
            return False
        last = self._replica.leadership.epoch(role)
        if granted is not None and self._spent.get(role) == granted:
            return False
        if granted is not None and granted > last + LARGEST_STEP:
            raise EpochOutOfReach(role, granted, last)
        if granted is None or granted > last:
            return True
        if granted <= stood and role in self._roles:
            raise StaleElectionEpoch(role, granted, last)
        _log.info(
            "a leadership grant came too late: joins the election again", role=role, epoch=granted, last=last
        )
        self.rejoin(role, granted)
        return False

    def rejoin(self, role: str, granted: int | None) -> None:
        """Returns a grant, and joins again to get a later one."""
        if self._stood.pop(role, None) is not None:
            if granted is not None:
                self._spent[role] = granted
            self._election.leave(role)
            self._join(role)

    def _check_all_jobs(self) -> None:
        for role_address in self._replica.active_addresses:
            self.on_state_changed(role_address)

    def _join(self, role: str) -> None:
        if role not in self._stood:
            self._stood[role] = self._replica.leadership.epoch(role)
            self._election.join(role)

    def _consider(self, job: str) -> None:
        leadership, state = self._replica.leadership, self._replica.states[job]
        dispatcher = leadership.leader(DISPATCHER)
        if not self._opposed:
            if leadership.is_claimed(job):
                self._join(job)
        elif leadership.is_claimed(job):
            self._schedule_join(job, self._spread(job))
        elif dispatcher is not None and isinstance(state, JobMasterState):
            if state.started < dispatcher.offset:
                self._schedule_join(job, self._spread(job))
            elif dispatcher.session == self._session and self._soon.get(job) is None:
                self._last_own = max(self._clock() + _A_MOMENT, self._last_own + _BETWEEN_OWN)
                self._soon.set(job, self._last_own)

    def _schedule_join(self, job: str, after: Time) -> None:
        due, known = self._clock() + after, self._soon.get(job)
        if known is None or due < known:
            self._soon.set(job, due)

    def _spread(self, job: str) -> Time:
        return int(derive_id(job, self._session)[:8], 16) % _SPREAD
