"""What an older release meets in a log that a newer one writes: it stops where it can't read on.

A service's event that is passed over leaves a hole in the state, and nobody notices: a job runs for ever, a task is
never cancelled. So a process stops at the first event whose schema it does not know. Garbage has no such power: the
record stops a process only where its bytes begin like an event, with a Header that names

- a service, under an epoch that is not below the one that its role has now, or
- a client, with the place of the submissions topic that the Dispatcher admitted it from.

Who can write such a record into the log can also write any other word of a service there, so it gives nobody a power
that Kafka's ACLs do not give. A record that must be passed over all the same is named by `log.skipped-offsets`.
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
