"""`high-availability.type: zookeeper`: a LeaderElection through ZooKeeper (the contract is in leader_election.py).

The process has one session, with one latch for each role: different processes may lead different roles. Calls are
recorded and executed by the session's thread. Its results are stored, and are valid while the session's lease is held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from ...infra.logging_setup import logger
from ..configuration.options.high_availability import HighAvailability
from ..core.role import JOB_MASTER, kind_of
from .latch import Latch
from .leader_information import LeaderInformation, encode
from .lease import uptime
from .paths import Paths
from .pipelined_requests import RequestSteps, run_pipelined
from .session import Session
from .settings import ZooKeeperSettings

_log = logger(__name__)

_NOTHING: Mapping[str, int | None] = {}


class ZooKeeperLeaderElection:
    """The election of one process. `me` is published when it leads, with the epoch added."""

    elected_by = HighAvailability.ZOOKEEPER.value

    def __init__(
        self, settings: ZooKeeperSettings, me: LeaderInformation, *, clock: Callable[[], float] = uptime
    ) -> None:
        """Connects in the background. Raises ConfigurationError if the settings cannot be applied on this machine."""
        self._paths = Paths.from_settings(settings)
        self._base_epoch = settings.base_epoch
        self._me = me
        self._clock = clock
        self._lock = threading.Lock()
        self._contenders: dict[str, Latch] = {}
        self._granted: Mapping[str, int | None] = _NOTHING
        self._confirmed: dict[str, int] = {}
        self._urgent: dict[Latch, None] = {}
        self._dirty: dict[Latch, None] = {}
        self._leaving: dict[Latch, bool] = {}
        """Latches that left and whose nodes are not deleted yet -> whether for ever."""
        self._lingering: dict[Latch, float] = {}
        """Latches that left for ever while other candidates wait -> when to delete all nodes, of any process."""
        self._under_way: set[Latch] = set()
        self._session = Session(settings, f"zookeeper-{me.address}", clock=clock)
        self._session.start(self)

    @property
    def suspended(self) -> bool:
        """Whether it is currently unknown who should lead."""
        return not self._session.usable

    def join(self, role: str) -> None:
        """Joins the election of a role; idempotent."""
        with self._lock:
            if role in self._contenders:
                return
            latch = Latch(self._session, self._paths, role, self._me.address.encode(), self._changed)
            self._contenders[role] = latch
            self._touch(latch)
        self._session.wake()

    def leave(self, role: str, *, for_ever: bool = False) -> None:
        """Leaves the election; deletes its nodes as soon as ZooKeeper is reachable."""
        with self._lock:
            latch = self._contenders.pop(role, None)
            if latch is None:
                if not for_ever:
                    return
                latch = Latch(self._session, self._paths, role, b"", self._changed)
            self._revoke(role)
            self._urgent.pop(latch, None)
            self._dirty.pop(latch, None)
            self._leaving[latch] = for_ever
        self._session.wake()

    def grants(self) -> Mapping[str, int | None]:
        """Returns role -> epoch; the same object as long as nothing changes."""
        return self._granted if self._session.held else _NOTHING

    def confirm_leadership(self, role: str, epoch: int) -> None:
        """Publishes the process as the leader that the log names."""
        with self._lock:
            latch = self._contenders.get(role)
            if latch is None or role not in self._granted or self._confirmed.get(role) == epoch:
                return
            self._confirmed[role] = epoch
            self._touch(latch)
        self._session.wake()

    def close(self) -> None:
        """Ends the session and with it all grants."""
        with self._lock:
            self._granted = _NOTHING
        self._session.close()

    def on_connected(self, *, anew: bool) -> None:
        """Checks whether the granted nodes still exist; the rest can wait (SessionListener)."""
        with self._lock:
            held = [] if anew else [self._contenders[role] for role in self._granted]
            for latch in self._contenders.values():
                self._touch(latch)
        self._run_pipelined(_round_robin(held), self._maintain)

    def on_lost(self, *, gone: bool) -> None:
        """Ends all terms (SessionListener)."""
        with self._lock:
            led = {self._contenders[role] for role in self._granted}
            latches = [*self._contenders.values(), *self._leaving]
            self._granted = _NOTHING
            self._confirmed.clear()
        for latch in latches:
            # A waiting candidate keeps its place if its session goes on.
            if gone or latch in led:
                latch.end()

    def run_once(self) -> float | None:
        """Processes the latches that changed (SessionListener)."""
        self._run_pipelined(self._next_dirty, self._acquire, self._changed)
        self._leave_latches()
        now = self._clock()
        self._run_pipelined(
            _round_robin([latch for latch, due in self._lingering.items() if due <= now]), self._purge
        )
        return max(0.0, min(self._lingering.values()) - now) if self._lingering else None

    def on_closing(self) -> None:
        """Deletes the nodes of left elections before the session ends (SessionListener)."""
        self._leave_latches()

    def _run_pipelined(
        self,
        next_latch: Callable[[], Latch | None],
        work: Callable[[Latch], RequestSteps[None]],
        failed: Callable[[Latch], None] = lambda _: None,
    ) -> None:
        """Processes many latches concurrently; the requests of one latch are sequential. After an error it starts no
        more latches, and raises the error in the end."""
        errors: list[Exception] = []

        def next_one() -> tuple[Latch, RequestSteps[None]] | None:
            latch = None if errors else next_latch()
            if latch is None:
                return None
            self._under_way.add(latch)
            return latch, work(latch)

        def done(latch: Latch, error: Exception | None) -> None:
            self._under_way.discard(latch)
            if error is not None:
                errors.append(error)
                failed(latch)

        run_pipelined(next_one, self._session.settle, done)
        if errors:
            raise errors[0]

    def _acquire(self, latch: Latch) -> RequestSteps[None]:
        epoch = yield from latch.acquire()
        role = latch.role
        with self._lock:
            if self._contenders.get(role) is not latch:
                return
            granted_epoch = None if epoch is None else epoch + self._base_epoch
            if self._granted.get(role) != granted_epoch:
                self._revoke(role)
                if granted_epoch is not None:
                    self._granted = {**self._granted, role: granted_epoch}
            confirmed = self._confirmed.get(role)
        if confirmed is not None:
            yield from latch.publish(encode(self._leader_information(confirmed)))

    def _maintain(self, latch: Latch) -> RequestSteps[None]:
        if (yield from latch.node_exists()):
            return
        _log.warning("this master's candidate node was deleted", role=latch.role)
        latch.end()
        with self._lock:
            if self._contenders.get(latch.role) is latch:
                self._revoke(latch.role)

    def _leave_latches(self) -> None:
        with self._lock:
            leaving = dict(self._leaving)
        self._run_pipelined(_round_robin(leaving), self._remove)

    def _remove(self, latch: Latch) -> RequestSteps[None]:
        with self._lock:
            for_ever = self._leaving[latch]
        if not (yield from latch.leave(for_ever=for_ever)):
            self._lingering[latch] = self._clock() + self._session.timeout_s
        with self._lock:
            del self._leaving[latch]

    def _purge(self, latch: Latch) -> RequestSteps[None]:
        yield from latch.purge()
        del self._lingering[latch]

    def _revoke(self, role: str) -> None:
        """Call with the lock held."""
        self._confirmed.pop(role, None)
        if role in self._granted:
            self._granted = {other: epoch for other, epoch in self._granted.items() if other != role}

    def _changed(self, latch: Latch) -> None:
        with self._lock:
            if self._contenders.get(latch.role) is latch:
                self._touch(latch)
        self._session.wake()

    def _next_dirty(self) -> Latch | None:
        with self._lock:
            for dirty in (self._urgent, self._dirty):
                latch = next((latch for latch in dirty if latch not in self._under_way), None)
                if latch is not None:
                    del dirty[latch]
                    return latch
        return None

    def _touch(self, latch: Latch) -> None:
        """Call with the lock held. Without a Dispatcher a cluster stands still, while a job without a JobMaster keeps
        running: the latches of jobs, which may be many, have lower priority."""
        (self._urgent if kind_of(latch.role) != JOB_MASTER else self._dirty)[latch] = None

    def _leader_information(self, epoch: int) -> LeaderInformation:
        me = self._me
        return LeaderInformation(me.address, me.session_id, epoch, me.endpoints)


def _round_robin(latches: Iterable[Latch]) -> Callable[[], Latch | None]:
    remaining = iter(latches)
    return lambda: next(remaining, None)
