"""Options of slot requests and unused slots."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import BOOL, DURATION, INT, MILLISECOND, SECOND, unlimited
from ....infra.config.options import ConfigOption
from .kinds import MASTER

SLOT_REQUEST_TIMEOUT = ConfigOption(
    key="slot.request.timeout",
    type=DURATION,
    default=300 * SECOND,
    at_least=MILLISECOND,
    doc="How long a slot request waits for busy slots before it fails.",
    scopes=MASTER,
)
UNFULFILLABLE_TIMEOUT = ConfigOption(
    key="slot.request.unfulfillable-timeout",
    type=DURATION,
    default=10 * SECOND,
    at_least=MILLISECOND,
    doc="How long a slot request waits that all registered slots, if free, could not fulfil, before it fails.",
    scopes=MASTER,
    ours=True,
)
SLOT_IDLE_TIMEOUT = ConfigOption(
    key="slot.idle.timeout",
    type=DURATION,
    default=50 * SECOND,
    at_least=MILLISECOND,
    doc="How long a job keeps a slot whose tasks have all finished.",
    scopes=MASTER,
)
MAX_SLOTS = ConfigOption[int | None](
    key="slotmanager.number-of-slots.max",
    type=unlimited(INT),
    default=None,
    at_least=1,
    doc="The maximum number of slots in active mode: no TaskExecutor is started beyond it.",
    scopes=MASTER,
)
EVENLY_SPREAD_OUT = ConfigOption(
    key="cluster.evenly-spread-out-slots",
    type=BOOL,
    default=False,
    doc="Whether slots are taken from the TaskExecutors with the most free slots, or TaskExecutors are filled one by "
    "one.",
    scopes=MASTER,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    SLOT_REQUEST_TIMEOUT,
    UNFULFILLABLE_TIMEOUT,
    SLOT_IDLE_TIMEOUT,
    MAX_SLOTS,
    EVENLY_SPREAD_OUT,
)
