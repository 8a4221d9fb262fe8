"""Stops an older release at the first event of a newer one that it cannot read.

The message names the release that can read it, if the log does (everyone.SchemasRegistered).

Skipping an unknown event of a service would leave a hole in the state that nobody notices: a job would run for ever, or
a task would never be cancelled. A process therefore stops at the first event with an unknown schema. Garbage does not
stop it: the record counts only if its bytes start with a Header whose sender is

- a service, under an epoch that is not below the current one of its role, or
- a client, with the position in the submissions topic from which the Dispatcher admitted it.

A writer of such a record could write any other event of a service as well, so this gives nobody more power than Kafka's
ACLs do. `log.skipped-offsets` names a record that must be skipped nevertheless.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from ...infra.version import __version__
from ...schemas.event import Record
from ..core.leadership import LeadershipState
from ..core.role import CLIENT, DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, REST_SERVER, TASK_EXECUTOR, kind_of
from .event_log import OnUnreadable, Unreadable

_SERVICES = frozenset({DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, REST_SERVER, TASK_EXECUTOR})


class NewerRelease(Exception):
    """The log holds an event of a newer release."""

    def __init__(self, unreadable: Unreadable) -> None:
        sender = "" if unreadable.header is None else f" from {unreadable.header.sender}"
        release = unreadable.release
        wrote = (
            "A newer release wrote it: install that release"
            if release is None
            else f"Release {release} wrote it: install that release"
        )
        super().__init__(
            f"{unreadable.topic} holds an event{sender} at offset {unreadable.offset} that this release, "
            f"{__version__}, can't read: {unreadable.reason}. {wrote}. (If none did: "
            f"-D log.skipped-offsets={unreadable.offset}, the same for all processes, skips it.)"
        )


def is_of_newer_release(unreadable: Unreadable, leadership: LeadershipState) -> bool:
    """Returns whether an unreadable record is an event of a service with an unknown schema."""
    header = unreadable.header
    if header is None:
        return False
    kind = kind_of(header.sender)
    if kind == CLIENT:
        return header.origin is not None
    return kind in _SERVICES and header.sender_epoch >= leadership.epoch(header.sender)


class UnreadableRecords:
    """An OnUnreadable for a reader that folds. It raises NewerRelease at the position of the record, not earlier.

    A tail reports a record before the preceding events are folded, which may depose its sender. `filter` therefore
    judges each record at its position. Records that do not stop the reader go to `then`.
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
        """Yields the batch for folding one by one, and judges the unreadable records in between. Raises
        NewerRelease."""
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
