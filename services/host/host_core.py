"""The decisions of a process that runs roles, without IO: no log, no clock, no thread, no lock.

`step` takes the events that the caller has read from the log, and the time. It folds the events, claims the roles that
the election grants, lets the led roles decide, and returns the actions of the caller in a `Ready`. The caller performs
them, reports it with `advance`, and calls `step` again. The design is that of etcd's raft library.

The core decides only after its own last append was read back: it never decides on events that it has only sent. The
last events of a fenced leader therefore have no effect.

The election grants and revokes leadership of all roles of the process (services/election). The core claims them in the
log, one LeaderElected for each role, and leads a role after it has read its claim back unfenced. It steps down from all
roles when the grant is revoked or when it reads another process's claim. While the election is suspended it decides
nothing and keeps its state. Without an election (`high-availability.type: none`) the newest process leads everything,
and the deposed one ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...infra.logging_setup import logger
from ...schemas.event import EVERYONE, Event, Record
from ...schemas.everyone import LeaderElected, TaskExecutorsForgotten
from ..core.decision import DecisionQueue
from ..core.feature_level import FEATURE_LEVEL
from ..core.leadership import leading_role
from ..core.replica import Replica
from ..core.role import (
    TASK_EXECUTOR,
    AnyRole,
    Instruction,
    OutgoingEvent,
    Time,
    kind_of,
    with_headers,
)
from ..election.leader_election import Grant, LeaderElection, StandaloneLeaderElection
from .grant_check import ElectedLeaderExists, is_claimable
from .job_failures import JobFailures

_log = logger(__name__)


class Deposed(Exception):
    """Another process leads a role that this process led. This process must end; its tasks keep running."""


class HostIdentity(NamedTuple):
    """The identity of a process in the log.

    `leads` are the roles that it is a candidate for; with the Dispatcher come the JobMasters. `session` is the unique
    id of the process. `endpoints` are its servers by name, as in LeaderElected. `feature_level` is the highest level
    that it knows.
    """

    cluster: str
    leads: tuple[str, ...]
    process_address: str
    session: str
    endpoints: Mapping[str, str] = {}
    feature_level: int = FEATURE_LEVEL


class LeaderTerm(NamedTuple):
    """`since` is the offset of the claim: every event of the term was sent after the process had read it."""

    epoch: int
    since: int


class Instructions(NamedTuple):
    """All actions that the state of a led address requires of its shell."""

    role_address: str
    instructions: Sequence[Instruction]
    state: Any


class Ready(NamedTuple):
    """The actions of the caller after a step, in the order of the fields."""

    retire: Sequence[str] = ()
    """The addresses whose shells must stop."""
    perform: Sequence[Instructions] = ()
    append: Sequence[Event] = ()
    has_decided: bool = False
    """Whether the core has decided on the replica's states; `perform` has all required actions."""
    wait_until: Time | None = None
    """The time of the next step if no event and no grant arrives before; None: no such time."""


class HostCore:
    """The core of one process over one replica. For one thread; only `term_for`, `with_headers` and `events_of_failure`
    are thread-safe.

    `election` grants leadership to the process; None grants it at once, and then `step` raises Deposed when another
    process claims a led role.
    """

    def __init__(
        self, replica: Replica, identity: HostIdentity, election: LeaderElection | None = None
    ) -> None:
        self._replica = replica
        self._identity = identity
        self._is_elected = election is not None
        self._election: LeaderElection = election or StandaloneLeaderElection()
        self._terms: Mapping[str, LeaderTerm] = {}
        """By role. Changed on the caller's thread only; readable from any thread."""
        self._now: Time = 0
        self._grant: Grant | None = None
        """The grant under which the process claims and leads."""
        self._joined_at = 0
        """The log's epoch when the process joined the election."""
        self._claimed: dict[str, int] = {}
        """Claims that were not read back yet: role -> epoch."""
        self._appended_to = -1
        self._queue = DecisionQueue()
        self._retired: dict[str, None] = {}
        self._job_failures = JobFailures(lambda role_address: replica.states.get(role_address))
        # `next` of a count is atomic: shells take numbers from their own threads.
        self._numbers = itertools.count()
        self.position = -1
        """The shells have seen the states up to this offset; -1 before the replica has folded the log."""

    def start(self, now: Time, *, abandons_election: bool = False) -> None:
        """Joins the election, once the replica has folded the log. `abandons_election`: leads without an election even
        if the last leader was elected. Raises ElectedLeaderExists."""
        self._now, self.position = now, self._replica.offset
        if not self._is_elected and not abandons_election:
            for role in self._identity.leads:
                leader = self._replica.leadership.leader(role)
                if leader is not None and leader.elected_by:
                    raise ElectedLeaderExists(role, leader)
        self._joined_at = self._last_epoch()
        self._election.join()

    def fold(self, batch: Iterable[Record], now: Time) -> None:
        """Folds the next events of the log; decides nothing. Raises Deposed."""
        self._now = now
        apply, mark, led = self._replica.apply, self._queue.mark, self.term_for
        for record in batch:
            before = self._replica.leadership
            changed = apply(record)
            if self._replica.leadership is not before and isinstance(record.body, LeaderElected):
                self._on_leader_elected(record, record.body)
            elif isinstance(record.body, TaskExecutorsForgotten):
                self._on_task_executors_forgotten()
            for role_address in changed:
                if led(role_address) is not None:
                    mark(role_address)

    def step(self, batch: Iterable[Record], now: Time) -> Ready:
        """Folds the next events of the log and decides. Call `advance` before the next step.

        Raises Deposed, StaleElectionEpoch and EpochOutOfReach.
        """
        self.fold(batch, now)
        perform: list[Instructions] = []
        append: list[Event] = []
        has_decided = False
        if self._replica.offset >= self._appended_to:
            # A claim that did not start a term came too late.
            self._claimed.clear()
            append = self._follow_election()
            if not append and not self._election.is_suspended:
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
                self._queue.mark(role_address)
        if ready.has_decided:
            self.position = max(position, self._replica.offset)

    def with_headers(self, role_address: str, owed: Sequence[OutgoingEvent], now: Time) -> list[Event]:
        """Returns events of a shell with their headers; none if the process does not lead the role (any more)."""
        term = self.term_for(role_address)
        if term is None:
            names = [event.body.AVRO_NAME for event in owed]
            _log.debug("drops events: this process does not lead the role", role=role_address, events=names)
            return []
        # Shells have seen the states up to this position only, not what was folded since.
        causes = [event.cause for event in owed if event.cause is not None]
        decided_at = max([self.position, term.since, *causes])
        return self._with_headers(role_address, owed, term.epoch, now, decided_at)

    def term_for(self, role_address: str) -> LeaderTerm | None:
        """Returns the term in which this process leads the address; None if it does not."""
        return self._terms.get(leading_role(role_address))

    @property
    def is_leading(self) -> bool:
        """Whether the process leads all roles that it is a candidate for."""
        return 0 < len(self._terms) == len(self._identity.leads)

    @property
    def is_idle(self) -> bool:
        """Whether a step without a batch would do nothing before `Ready.wait_until`."""
        has_new_grant = self._election.grant != self._grant or (self._grant and not self.is_leading)
        return not self._queue.has_changes and not has_new_grant

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

    def _on_task_executors_forgotten(self) -> None:
        leaders = self._replica.leadership.leaders
        for role in self._terms:
            if kind_of(role) == TASK_EXECUTOR and role not in leaders:
                reason = f"the cluster has forgotten {role}, which has not taken part for long"
                raise Deposed(f"{reason}: start this process again")

    def _start_term(self, role: str, term: LeaderTerm) -> None:
        _log.info("leads", role=role, cluster=self._identity.cluster, epoch=term.epoch)
        self._terms = {**self._terms, role: term}
        if self.is_leading:
            self._election.confirm_leadership(term.epoch)
        for role_address in self._replica.addresses_in_term(role):
            self._queue.mark(role_address)

    def _on_deposed(self, body: LeaderElected) -> None:
        reason = f"{body.address} leads {body.role} of {self._identity.cluster} since epoch {body.epoch}"
        if self._is_elected:
            self._step_down(reason)
            self._rejoin()
        elif self.is_leading:
            epoch = self._terms[body.role].epoch
            raise Deposed(f"{reason}: this process stops leading epoch {epoch}; running tasks continue")
        else:
            # Two processes claim at the same time, and both go on until one leads all roles.
            self._end_terms([body.role])

    def _step_down(self, reason: str) -> None:
        _log.warning("steps down", cluster=self._identity.cluster, reason=reason)
        self._end_terms(self._terms)

    def _end_terms(self, roles: Iterable[str]) -> None:
        ended = tuple(roles)
        self._terms = {role: term for role, term in self._terms.items() if role not in ended}
        for role in ended:
            for role_address in self._replica.addresses_in_term(role):
                # It sends nothing more for the address and gives its shell no more instructions.
                self._queue.remove(role_address)
                self._retired[role_address] = None

    def _rejoin(self) -> None:
        """Returns the grant, and joins the election again to get a later one."""
        self._joined_at = self._last_epoch()
        self._election.rejoin()

    def _last_epoch(self) -> int:
        return max(map(self._replica.leadership.epoch, self._identity.leads), default=0)

    def _follow_election(self) -> list[Event]:
        """Steps down if its grant was revoked; returns the claims of the roles that are granted and not led yet."""
        grant = self._election.grant
        if self._terms and grant != self._grant:
            self._step_down("the leadership grant was revoked")
        self._grant = grant
        if grant is None or self.is_leading or self._election.is_suspended:
            return []
        roles = [role for role in self._identity.leads if role not in self._terms]
        if is_claimable(grant, roles, self._replica.leadership, self._joined_at, self._election.elected_by):
            return [event for role in roles for event in self._claim(role, grant)]
        if self._terms:
            self._step_down("its grant came too late")
        self._rejoin()
        return []

    def _claim(self, role: str, grant: Grant) -> list[Event]:
        identity = self._identity
        epoch = self._replica.leadership.epoch(role) + 1 if grant.epoch is None else grant.epoch
        self._claimed[role] = epoch
        body = LeaderElected(
            role=role,
            epoch=epoch,
            address=identity.process_address,
            session=identity.session,
            endpoints=identity.endpoints,
            elected_by=self._election.elected_by,
            feature_level=identity.feature_level,
        )
        owed = [OutgoingEvent(EVERYONE, body, None)]
        return self._with_headers(role, owed, epoch, self._now, self._replica.offset)

    def _find_led(self, role_address: str) -> tuple[AnyRole, Any] | None:
        if self.term_for(role_address) is None:
            return None
        return self._replica.role(role_address), self._replica.states[role_address]

    def _decide(self) -> tuple[list[Instructions], list[Event]]:
        now, decided_at = self._now, self._replica.offset
        perform: list[Instructions] = []
        events: list[Event] = []
        for role_address, state, decision in self._queue.decide(now, self._find_led):
            term = self.term_for(role_address)
            if decision.error is not None:
                events += self.events_of_failure(role_address, decision.error, now)
            elif decision.events and term is not None:
                events += self._with_headers(
                    role_address, decision.events, term.epoch, now, decided_at, decided=True
                )
            perform.append(Instructions(role_address, decision.instructions, state))
        return perform, events

    def _next_deadline(self) -> Time | None:
        if self._election.is_suspended:
            return None
        if not self.is_idle and self._replica.offset >= self._appended_to:
            return self._now
        return self._queue.next_deadline()

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
