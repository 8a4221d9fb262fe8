"""Restart strategies: pure functions from earlier failures to the time of the next restart, or to the job's failure
(Flink's RestartBackoffTimeStrategy; FLIP-364 for the exponential delay).

Failures of one cause count once; `identity` names the cause. Failures that arrive while an earlier one waits for its
restart count once, too: a query, a broker or a peer that fails many tasks is one failure. Times are those of the
failures' events.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from ..configuration.role_options import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategyOptions,
)
from ..core.role import Time


class FailureHistory(msgspec.Struct, frozen=True):
    """The failures that a strategy considers."""

    counted: int = 0
    """The number of failures; for the exponential delay since the last reset."""
    identity: str | None = None
    """The identity of the last failure."""
    decision: int = -1
    """The last decision of the ResourceManager that has counted: its `decided_at`; -1: none. Decisions are in the order
    of the log, so a later event of this one, or of an earlier one, counts no more."""
    restart_at: Time | None = None
    """When the tasks of the last failure restart; None: never."""
    backoff: Time = 0
    """Exponential delay: the last delay, without jitter."""
    recent: tuple[Time, ...] = ()
    """Failure rate: the times of failures that may still count."""


def on_failure(
    strategy: RestartStrategyOptions, history: FailureHistory, identity: str, time: Time, salt: str
) -> FailureHistory:
    """Returns the history with one more failure; `restart_at` is the decision. `salt` decorrelates the jitter of
    jobs."""
    if identity == history.identity:
        return history
    history = replace(history, identity=identity)
    if history.restart_at is not None and time < history.restart_at:
        # The earlier failures have not restarted yet: all restart together.
        return history
    match strategy:
        case NoRestart():
            return replace(history, counted=history.counted + 1, restart_at=None)
        case FixedDelay(attempts=attempts, delay=delay):
            counted = history.counted + 1
            return replace(history, counted=counted, restart_at=time + delay if counted <= attempts else None)
        case FailureRate(max_failures=most, interval=interval, delay=delay):
            recent = (*(each for each in history.recent if time - each < interval), time)
            restart_at = time + delay if len(recent) <= most else None
            return replace(
                history, counted=history.counted + 1, recent=recent[-most - 1 :], restart_at=restart_at
            )
        case ExponentialDelay():
            return _exponential_delay(strategy, history, time, f"{salt}/{identity}")


def _exponential_delay(
    strategy: ExponentialDelay, history: FailureHistory, time: Time, salt: str
) -> FailureHistory:
    last = history.restart_at
    if last is None or time - last >= strategy.reset_threshold:
        counted, backoff = 1, strategy.initial
    else:
        counted = history.counted + 1
        backoff = min(strategy.longest, round(history.backoff * strategy.multiplier))
    if strategy.attempts is not None and counted > strategy.attempts:
        return replace(history, counted=counted, restart_at=None)
    delay = min(strategy.longest, backoff + round(backoff * strategy.jitter * _between(salt)))
    return replace(history, counted=counted, backoff=backoff, restart_at=time + max(0, delay))


def _between(salt: str) -> float:
    """Returns a number from -1 to 1, the same for the same salt."""
    drawn = int.from_bytes(hashlib.blake2b(salt.encode(), digest_size=7).digest(), "big")
    return drawn / (1 << 55) - 1.0
