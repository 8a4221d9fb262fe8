"""The order in which the requests of several topics are admitted.

The tenants take turns: each one with a request that waits is admitted one before any of them is admitted two. So a
flood of one tenant delays a request of another by at most one request of each other tenant. The topic without a tenant
takes its turn as a tenant does. A tenant that has used up its requests of the last minute passes its turns, and its
requests wait. A few requests of each tenant are in memory; `is_full` says when to read no more of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

T = TypeVar("T")
MAX_WAITING: Final = 100
"""Requests of a tenant in memory."""
MAX_WAITING_BYTES: Final = 1 << 20
"""Bytes of these requests, without the last one."""
MINUTE_S: Final = 60.0


class TenantTurns(Generic[T]):
    """Requests that were read and not admitted yet. Times are in seconds of one monotonic clock."""

    def __init__(self, max_per_minute: Mapping[str, int | None]) -> None:
        """`max_per_minute`: tenant -> the requests that may be admitted in any 60 seconds; None: no limit."""
        self._max_per_minute = max_per_minute
        self._waiting: dict[str, deque[tuple[T, int]]] = {}
        """Tenant -> its requests with their sizes, in the order of their turns; without those that have none."""
        self._bytes: dict[str, int] = {}
        self._admitted_at: dict[str, deque[float]] = {
            tenant: deque(maxlen=most) for tenant, most in max_per_minute.items() if most is not None
        }
        """Tenant with a limit -> when its last requests were taken, as many as its limit."""

    def count(self, tenant: str, taken_at: float) -> None:
        """Counts a request that an earlier leader has taken. Called before `take`, oldest first."""
        if tenant in self._admitted_at:
            self._admitted_at[tenant].append(taken_at)

    @property
    def has_limits(self) -> bool:
        """Whether any tenant has a limit."""
        return bool(self._admitted_at)

    def add(self, tenant: str, request: T, size: int) -> None:
        """Adds a request that was read; `size` in bytes."""
        self._waiting.setdefault(tenant, deque()).append((request, size))
        self._bytes[tenant] = self._bytes.get(tenant, 0) + size

    def take(self, now: float) -> tuple[str, T] | None:
        """Removes and returns the next request and its tenant; None if no request may be admitted now."""
        tenant = next((each for each in self._waiting if self._may_take(each, now)), None)
        if tenant is None:
            return None
        queue = self._waiting.pop(tenant)
        request, size = queue.popleft()
        self._bytes[tenant] -= size
        if queue:
            # Behind all others.
            self._waiting[tenant] = queue
        if tenant in self._admitted_at:
            self._admitted_at[tenant].append(now)
        return tenant, request

    def has_next(self, now: float) -> bool:
        """Whether a request may be admitted now."""
        return any(self._may_take(tenant, now) for tenant in self._waiting)

    def is_full(self, tenant: str) -> bool:
        """Whether no more requests of the tenant should be read for now."""
        return (
            len(self._waiting.get(tenant, ())) >= MAX_WAITING
            or self._bytes.get(tenant, 0) >= MAX_WAITING_BYTES
        )

    def is_empty(self, tenant: str) -> bool:
        """Whether no request of the tenant waits."""
        return tenant not in self._waiting

    def clear(self) -> None:
        """Forgets the requests: they will be read again. Those that were taken still count for the minute."""
        self._waiting.clear()
        self._bytes.clear()

    def _may_take(self, tenant: str, now: float) -> bool:
        taken, most = self._admitted_at.get(tenant), self._max_per_minute.get(tenant)
        return taken is None or most is None or len(taken) < most or now - taken[0] >= MINUTE_S
