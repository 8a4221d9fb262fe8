"""Options of simulated clusters, in which only the masters are real."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import BOOL, DURATION
from ....infra.config.options import ConfigOption
from .kinds import BOTH

SIMULATED = ConfigOption(
    key="simulation.enabled",
    type=BOOL,
    default=False,
    doc="Whether tasks, channels and checkpoints are simulated, as in a cluster that `tailrace fork` creates: masters "
    "decide as usual, TaskExecutors run nothing, and no job topic and no checkpoint file is touched.",
    scopes=BOTH,
    ours=True,
)
CLOCK_BEHIND = ConfigOption(
    key="simulation.clock-behind",
    type=DURATION,
    default=0,
    doc="By how much the clocks of a simulated cluster are behind. A cluster that continues yesterday's history uses "
    "yesterday's time, so that no timeout expires in between.",
    scopes=BOTH,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (SIMULATED, CLOCK_BEHIND)
