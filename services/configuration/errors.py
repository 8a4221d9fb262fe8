"""The error for invalid configurations."""

from __future__ import annotations

from collections.abc import Sequence

_MOST_SHOWN = 3


class ConfigurationError(ValueError):
    """The configuration is refused. `faults` has one line for each reason: where it is, what is wrong, and what is
    valid.

    `str()` of it is one line with the first few.
    """

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        more = len(self.faults) - _MOST_SHOWN
        shown = "; ".join(self.faults[:_MOST_SHOWN])
        super().__init__(f"{shown}; and {more} more errors" if more > 0 else shown)
