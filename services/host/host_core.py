"""The decisions of a process that runs roles, without IO: no log, no clock, no thread, no lock.

`step` takes what the caller has read of the log, and the time. It folds the events, claims the roles that the election
grants, lets the led roles decide, and returns in a `Ready` what the caller has to do. The caller does it, reports it
with `advance`, and calls `step` again. The design is that of etcd's raft library.

The core decides only when its own last append was read back: it never decides on events that it only sent. The last
events of a fenced leader therefore have no effect.

The set of led roles changes at run time. The election grants and revokes leadership (services/election). The core
claims a granted role in the log, and leads it once it has read its claim back unfenced. It steps down when a grant is
revoked or when it reads another process's claim. While the election is suspended it decides nothing and keeps its
state. Without an election (`high-availability.type: none`) the newest process leads everything, and the deposed one
ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...infra.logging_setup import logger
from ...schemas.event import EVERYONE, Event, Record
from ...schemas.everyone import LeaderElected
from ..core.deadline_heap import DeadlineHeap
from ..core.decision import decide_role
from ..core.replica import Replica
from ..core.role import DISPATCHER, JOB_MASTER, Instruction, OutgoingEvent, Time, kind_of, with_headers
from ..election.leader_election import LeaderElection, StandaloneLeaderElection
from .election_participant import ElectedLeaderExists, ElectionParticipant
from .held_terms import HeldTerms, LeaderTerm
from .job_failures import JobFailures

_log = logger(__name__)


class Deposed(Exception):
    """Another process leads a role that this process led. This process must end; its tasks keep running."""


class HostIdentity(NamedTuple):
    """What a process says of itself in the log.

    `leads` are the roles that it is a candidate for; with the Dispatcher come the JobMasters. `session` is the unique
    id of the process. `endpoints` are its servers by name, as in LeaderElected.
    """

    cluster: str
    leads: tuple[str, ...]
    process_address: str
    session: str
    endpoints: Mapping[str, str] = {}


class Instructions(NamedTuple):
    """All that the state of a led address requires of its shell."""

    role_address: str
    instructions: Sequence[Instruction]
    state: Any


class Ready(NamedTuple):
    """What the caller has to do after a step, in the order of the fields."""

    retire: Sequence[str] = ()
    """The addresses whose shells must stop."""
    perform: Sequence[Instructions] = ()
    append: Sequence[Event] = ()
    has_decided: bool = False
    """Whether the core has decided on the replica's states; `perform` has all that they require."""
    wait_until: Time | None = None
    """The time of the next step if no event and no grant arrives before; None: no such time."""


class HostCore:
    """The core of one process over one replica. For one thread; only `term_for`, `with_headers` and `events_of_failure`
    are thread-safe.

    `election` grants roles to the process; None grants all, and then `step` raises Deposed when another process claims
    one.
    """

    def __init__(
        self, replica: Replica, identity: HostIdentity, election: LeaderElection | None = None
    ) -> None:
        self._replica = replica
        self._identity = identity
        self._is_elected = election is not None
        self._election: LeaderElection = election or StandaloneLeaderElection()
        self._terms = HeldTerms(lambda: replica.leadership)
        self._now: Time = 0
        self._participant = ElectionParticipant(
            self._election,
            replica,
            identity.leads,
            session=identity.session,
            opposed=self._is_elected,
            clock=lambda: self._now,
        )
        self._granted: Mapping[str, int | None] | None = None
        """The grants that were processed last; None: process them again."""
        self._claimed: dict[str, int] = {}
        """Claims that were not read back yet: role -> epoch."""
        self._appended_to = -1
        self._dirty: dict[str, None] = {}
        self._deadlines = DeadlineHeap()
        self._retired: dict[str, None] = {}
        self._job_failures = JobFailures(lambda role_address: replica.states.get(role_address))
        # `next` of a count is atomic: shells take numbers from their own threads.
        self._numbers = itertools.count()
        self.position = -1
        """The shells have seen the states up to this offset; -1 before the replica has folded the log."""

    def start(self, now: Time, *, abandons_election: bool = False) -> None:
        """Joins the elections, once the replica has folded the log. `abandons_election`: leads without an election even
        if the last leader was elected. Raises ElectedLeaderExists."""
        self._now, self.position = now, self._replica.offset
        if not self._is_elected and not abandons_election:
            for role in self._identity.leads:
                leader = self._replica.leadership.leader(role)
                if leader is not None and leader.elected_by:
                    raise ElectedLeaderExists(role, leader)
        self._participant.start()

    def fold(self, batch: Iterable[Record], now: Time) -> None:
        """Folds the next events of the log; decides nothing. Raises Deposed."""
        self._now = now
        apply, dirty, led = self._replica.apply, self._dirty, self._terms.term_for
        on_state_changed = self._participant.on_state_changed
        for record in batch:
            before = self._replica.leadership
            changed = apply(record)
            if self._replica.leadership is not before and isinstance(record.body, LeaderElected):
                self._on_leader_elected(record, record.body)
            for role_address in changed:
                if led(role_address) is not None:
                    dirty[role_address] = None
                if on_state_changed(role_address):
                    self._on_quiescent(role_address)

    def step(self, batch: Iterable[Record], now: Time) -> Ready:
        """Folds the next events of the log and decides. Call `advance` before the next step.

        Raises Deposed, StaleElectionEpoch and EpochOutOfReach.
        """
        self.fold(batch, now)
        self._participant.tick()
        perform: list[Instructions] = []
        append: list[Event] = []
        has_decided = False
        if self._replica.offset >= self._appended_to:
            self._check_claims()
            append = self._follow_election()
            if not append and not self._election.suspended:
                perform, append = self._decide()
                has_decided = True
        retire, self._retired = tuple(self._retired), {}
        return Ready(retire, perform, append, has_decided, self._next_deadline())

    def advance(
        self, ready: Ready, offsets: Sequence[int] = (), left: Iterable[str] = (), position: int = -1
    ) -> None:
        """Reports that the caller did all of `ready`. `offsets` are those of the appended events; `left` are the
        senders of the events that were not appended; `position` is the offset up to which the log was read."""
        if offsets:
            self._appended_to = offsets[-1]
        for role_address in left:
            if self._claimed.pop(role_address, None) is None:
                self._dirty[role_address] = None
            else:
                self._granted = None
        if ready.has_decided:
            self.position = max(position, self._replica.offset)

    def with_headers(self, role_address: str, owed: Sequence[OutgoingEvent], now: Time) -> list[Event]:
        """Returns events of a shell with their headers; none if the process does not lead the role (any more)."""
        term = self._terms.term_for(role_address)
        if term is None:
            names = [event.body.AVRO_NAME for event in owed]
            _log.debug("dropped events: this process does not lead the role", role=role_address, events=names)
            return []
        # Shells have seen the states up to this position only, not what was folded since.
        causes = [event.cause for event in owed if event.cause is not None]
        decided_at = max([self.position, term.since, *causes])
        return self._with_headers(role_address, owed, term.epoch, now, decided_at)

    def term_for(self, role_address: str) -> LeaderTerm | None:
        """Returns the term in which this process leads the address; None if it does not."""
        return self._terms.term_for(role_address)

    @property
    def leads_any(self) -> bool:
        """Whether the process leads anything."""
        return bool(self._terms)

    @property
    def leads_all(self) -> bool:
        """Whether the process leads all roles that it is a candidate for."""
        return bool(self._terms) and all(role in self._terms for role in self._identity.leads)

    @property
    def is_idle(self) -> bool:
        """Whether a step without a batch would do nothing before `Ready.wait_until`."""
        return not self._dirty and self._election.grants() is self._granted

    def next_join(self, job: str) -> Time | None:
        """Returns when the process will join the election of a job; None: not planned."""
        return self._participant.next_join(job)

    def events_of_failure(self, role_address: str, error: Exception, now: Time) -> list[Event]:
        """Returns the events that fail the job of a JobMaster that cannot decide, or whose event cannot be written.
        Raises the error itself for any other role."""
        return self.with_headers(role_address, self._job_failures.events_of(role_address, error), now)

    def _on_leader_elected(self, record: Record, body: LeaderElected) -> None:
        role = body.role
        if body.session == self._identity.session:
            if self._claimed.get(role) == body.epoch:
                self._start_term(role, LeaderTerm(body.epoch, record.offset))
        elif role in self._terms:
            self._on_deposed(body)
        else:
            if kind_of(role) == JOB_MASTER and self._terms.term_for(DISPATCHER) is not None:
                self._retire(role)
            if self._granted and role in self._granted:
                # The process has a grant for this role and has skipped it: process the grants again.
                self._granted = None
        self._participant.on_leader_elected(role)

    def _start_term(self, role: str, term: LeaderTerm) -> None:
        # There may be thousands of jobs.
        log = _log.debug if kind_of(role) == JOB_MASTER else _log.info
        log("leads", role=role, cluster=self._identity.cluster, epoch=term.epoch)
        self._terms.begin(role, term)
        self._election.confirm_leadership(role, term.epoch)
        self._dirty.update(dict.fromkeys(self._replica.addresses_in_term(role)))

    def _on_deposed(self, body: LeaderElected) -> None:
        reason = f"{body.address} leads {body.role} of {self._identity.cluster} since epoch {body.epoch}"
        if self.leads_all and not self._is_elected:
            term = self._terms.term_for(body.role)
            raise Deposed(
                f"{reason}: this process stops leading epoch {term.epoch if term else 0}; running tasks are not touched"
            )
        granted = (self._granted or {}).get(body.role)
        self._step_down(body.role, reason)
        self._participant.rejoin(body.role, granted)

    def _step_down(self, role: str, reason: str) -> None:
        log = _log.debug if kind_of(role) == JOB_MASTER else _log.warning
        log("steps down", role=role, cluster=self._identity.cluster, reason=reason)
        affected = self._replica.addresses_in_term(role)
        self._terms.end(role)
        for role_address in affected:
            self._retire(role_address)
        # The election may grant the same role again at once.
        self._granted = None

    def _retire(self, role_address: str) -> None:
        """Sends nothing more for the address and gives its shell no more instructions."""
        self._dirty.pop(role_address, None)
        self._deadlines.set(role_address, None)
        self._retired[role_address] = None

    def _on_quiescent(self, job: str) -> None:
        """Ends the term of a quiescent job. If the job becomes active again, the process that claims it then leads
        it."""
        if job in self._terms:
            self._terms.end(job)
            self._retire(job)

    def _check_claims(self) -> None:
        """Called when all claims were read back. If another process's claim came first, every reader accepts that one:
        the grants must be processed again."""
        if any(self._terms.term_for(role) is None for role in self._claimed):
            self._granted = None
        self._claimed.clear()

    def _follow_election(self) -> list[Event]:
        """Steps down from roles that are no longer granted; returns the claims of roles that are newly granted."""
        granted = self._election.grants()
        if granted is self._granted:
            return []
        for role in self._terms.roles():
            if role not in granted:
                self._step_down(role, "the leadership grant was revoked")
        if self._election.suspended:
            return []
        # There may be many jobs, and every grant makes a new mapping: skip the grants that were processed before.
        known, self._granted = self._granted or {}, granted
        claims: list[Event] = []
        for role, epoch in granted.items():
            if (epoch is None or known.get(role) != epoch) and self._should_claim(role, epoch):
                claims += self._claim(role, epoch)
        return claims

    def _should_claim(self, role: str, granted: int | None) -> bool:
        term = self._terms.term_for(role)
        if term is not None:
            # For example a job that is led in the Dispatcher's term.
            self._election.confirm_leadership(role, term.epoch)
            return False
        if kind_of(role) == JOB_MASTER and not self._replica.is_active(role):
            return False
        return self._participant.is_valid(role, granted)

    def _claim(self, role: str, granted: int | None) -> list[Event]:
        identity = self._identity
        epoch = self._replica.leadership.epoch(role) + 1 if granted is None else granted
        self._claimed[role] = epoch
        body = LeaderElected(
            role=role,
            epoch=epoch,
            address=identity.process_address,
            session=identity.session,
            endpoints=identity.endpoints if role in identity.leads else {},
            elected_by=self._election.elected_by,
        )
        owed = [OutgoingEvent(EVERYONE, body, None)]
        return self._with_headers(role, owed, epoch, self._now, self._replica.offset)

    def _decide(self) -> tuple[list[Instructions], list[Event]]:
        now = self._now
        dirty, self._dirty = self._dirty, {}
        for role_address in self._deadlines.pop_expired(now):
            dirty[role_address] = None
        perform: list[Instructions] = []
        events: list[Event] = []
        for role_address in dirty:
            term = self._terms.term_for(role_address)
            if term is None:
                continue
            role, state = self._replica.role(role_address), self._replica.states[role_address]
            decision = decide_role(role, state, now)
            if decision.error is not None:
                events += self.events_of_failure(role_address, decision.error, now)
            elif decision.events:
                events += self._with_headers(
                    role_address, decision.events, term.epoch, now, self._replica.offset, decided=True
                )
            self._deadlines.set(role_address, decision.deadline)
            perform.append(Instructions(role_address, decision.instructions, state))
        return perform, events

    def _next_deadline(self) -> Time | None:
        if self._election.suspended:
            return None
        if not self.is_idle and self._replica.offset >= self._appended_to:
            return self._now
        deadlines = (self._deadlines.earliest(), self._participant.next_deadline())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _with_headers(
        self,
        sender: str,
        owed: Sequence[OutgoingEvent],
        epoch: int,
        now: Time,
        decided_at: int,
        *,
        decided: bool = False,
    ) -> list[Event]:
        return with_headers(
            owed,
            cluster=self._identity.cluster,
            sender=sender,
            epoch=epoch,
            decided_at=decided_at,
            now=now,
            numbers=self._numbers,
            decided=decided,
        )
