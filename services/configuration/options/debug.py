"""Options that help to find an error in tailrace itself."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import BOOL
from ....infra.config.options import ConfigOption
from .kinds import BOTH

VALIDATE_INDEXES = ConfigOption(
    key="debug.validate-indexes",
    type=BOOL,
    default=False,
    doc="Whether a process recomputes all indexes of a state after each event that changes it, and ends at the first "
    "difference. It costs the size of the state for each event.",
    scopes=BOTH,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (VALIDATE_INDEXES,)
