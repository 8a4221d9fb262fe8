"""Stops an older release at the first event of a newer release that it can't read.

If a reader skipped an event of a service, its state would be wrong without any sign: a job would run for ever, a task
would never be cancelled. So a process stops at the first event whose schema it does not know. Garbage does not stop it:
the bytes must begin like an event, with a Header that names

- a service, under an epoch that is not below the current epoch of its role, or
- a client, with the place in the submissions topic from which the Dispatcher admitted it.

Whoever can write such a record to the log can forge any other event there, so this rule grants nothing beyond Kafka's
ACLs. `log.skipped-offsets` names a record that readers must skip nevertheless.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from ...schemas.event import Record
from ..core.leadership import LeadershipState
from ..core.role import CLIENT, DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, REST_SERVER, TASK_EXECUTOR, kind_of
from .event_log import OnUnreadable, Unreadable

_SERVICES = frozenset({DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, REST_SERVER, TASK_EXECUTOR})


class NewerRelease(Exception):
    """The log holds an event of a release that is newer than this one."""

    def __init__(self, unreadable: Unreadable) -> None:
        sender = "" if unreadable.header is None else f" from {unreadable.header.sender}"
        super().__init__(
            f"{unreadable.topic} holds an event{sender} at offset {unreadable.offset} that this release can't read: "
            f"{unreadable.reason}. A newer release wrote it: install that one. (Where none did: "
            f"-D log.skipped-offsets={unreadable.offset}, the same for all processes, passes it over.)"
        )


def is_of_newer_release(unreadable: Unreadable, leadership: LeadershipState) -> bool:
    """Whether a record that can't be read is the word of a service, in a schema that is not known here."""
    header = unreadable.header
    if header is None:
        return False
    kind = kind_of(header.sender)
    if kind == CLIENT:
        return header.origin is not None
    return kind in _SERVICES and header.sender_epoch >= leadership.epoch(header.sender)


class UnreadableRecords:
    """An OnUnreadable for a reader that folds: it raises NewerRelease where such a record stands, and not before.

    A tail tells of a record before the events in front of it are folded, which may say that its sender is deposed. So
    each is judged in its turn, by `among`. What does not stop the reader goes to `then`.
    """

    def __init__(
        self,
        leadership: Callable[[], LeadershipState],
        then: OnUnreadable | None = None,
    ) -> None:
        self._leadership = leadership
        self._then = then
        self._met: deque[Unreadable] = deque()

    def __call__(self, unreadable: Unreadable) -> None:
        self._met.append(unreadable)

    def filter(self, batch: Iterable[Record]) -> Iterable[Record]:
        """The batch, to be folded one by one; what could not be read is judged in between. Raises NewerRelease."""
        return self._check_each(batch) if self._met else batch

    def _check_each(self, batch: Iterable[Record]) -> Iterator[Record]:
        for record in batch:
            while self._met and self._met[0].offset < record.offset:
                self._check(self._met.popleft())
            yield record
        while self._met:
            self._check(self._met.popleft())

    def _check(self, unreadable: Unreadable) -> None:
        if is_of_newer_release(unreadable, self._leadership()):
            raise NewerRelease(unreadable)
        if self._then is not None:
            self._then(unreadable)
