"""Bounds texts in events of TaskExecutors, so that the ResourceManager's own events fit into the log.

The ResourceManager repeats ids and addresses of other processes: one that is too long would end every leader. An event
with such a text is illegal, and a heartbeat with one is ignored. Reasons may be long: they are truncated when they are
sent (services/core/reason_limits.py).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ...schemas import resource_manager
from ...schemas.body import Body

LONGEST: Final = 1_000
"""Characters of an id, an address or the name of a resource."""
MOST_SLOTS: Final = 10_000
"""The limit of one report; a TaskExecutor has at most 1,024."""
_UNBOUNDED: Final = frozenset({"reason", "configuration", "hardware"})
"""Fields that are never repeated unchanged."""
_REPORTS: Final = (
    resource_manager.RegisterTaskExecutor,
    resource_manager.SendSlotReport,
    resource_manager.SlotReportContradicted,
    resource_manager.NotifySlotAvailable,
    resource_manager.SlotRequestAccepted,
    resource_manager.SlotRequestRejected,
    resource_manager.DisconnectTaskManager,
    resource_manager.HeartbeatFromTaskManager,
)
"""Events of TaskExecutors, and events derived from their heartbeats."""


def find_error(body: Body) -> str | None:
    """Returns the limit that an event exceeds; None if it exceeds none."""
    if not isinstance(body, _REPORTS):
        return None
    slots = getattr(body, "slots", ())
    if len(slots) > MOST_SLOTS:
        return f"it reports {len(slots):,} slots, more than {MOST_SLOTS:,}"
    for name in body.__struct_fields__:
        if name not in _UNBOUNDED and (size := _longest(getattr(body, name))) > LONGEST:
            return f"its {name} has a text of {size:,} characters, more than {LONGEST:,}"
    return None


def _longest(value: Any) -> int:
    """Returns the number of characters of the longest text in a value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, msgspec.Struct):
        return max((_longest(getattr(value, name)) for name in value.__struct_fields__), default=0)
    if isinstance(value, tuple):
        return max(map(_longest, value), default=0)
    if isinstance(value, dict):
        return max((len(key) for key in value), default=0)
    return 0
