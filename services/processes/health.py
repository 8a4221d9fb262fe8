"""Whether a process works, for the probes of Kubernetes and of load balancers: `/health/live` and `/health/ready`.

They attest the loop of the host, not only that a server answers. A process is alive while its loop iterates; before the
loop starts, it may wait for Kafka as long as it likes. A loop that waits for Kafka ends the process by itself after
KAFKA_TIMEOUT_S, so one that is silent for longer hangs. A process is ready once it has read the log to its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from ..diagnostics.server import TEXT, Content, Handler, Query, Unhealthy, UnknownPath
from .process_lifecycle import KAFKA_TIMEOUT_S

HEALTH: Final = "health"
"""The first part of the paths."""
LIVE: Final = "live"
READY: Final = "ready"
HUNG_AFTER_S: Final = KAFKA_TIMEOUT_S + 60.0
IDLE_AFTER_S: Final = 15.0
"""A process whose loop is silent for this long waits for Kafka: it is alive, and not ready."""


class ObservedHost(Protocol):
    """The part of a Host that says how it is."""

    @property
    def position(self) -> int: ...

    @property
    def silent_s(self) -> float: ...


def health_paths(host: ObservedHost) -> Mapping[str, Handler]:
    """Returns the paths of a process for DiagnosticsServer."""

    def answer(query: Query) -> Content:
        if query.rest not in (LIVE, READY):
            raise UnknownPath(f"there is only /{HEALTH}/{LIVE} and /{HEALTH}/{READY}")
        if query.rest == READY:
            _require(host.position >= 0, "the process has not read the log yet")
        longest_s = IDLE_AFTER_S if query.rest == READY else HUNG_AFTER_S
        return _require(host.silent_s < longest_s, f"the loop is silent for {host.silent_s:.0f} s")

    return {HEALTH: answer}


def _require(is_healthy: bool, reason: str) -> Content:
    if not is_healthy:
        raise Unhealthy(reason)
    return Content(TEXT, b"ok\n")
