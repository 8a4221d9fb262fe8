"""The size of a benchmark's run: BENCH_SCALE, a factor of its counts and durations.

Figures are measured with 1. The smoke test (tests/benchmarks) runs every benchmark at a hundredth of its size, which
only shows that it works with the present code. Such a run writes no figures.
"""

from __future__ import annotations

import os
from typing import Final

SCALE: Final = float(os.environ.get("BENCH_SCALE", "1"))


def scaled(count: int, least: int = 1) -> int:
    """Returns a count of a full run at the scale of this one, but at least `least`."""
    return max(least, round(count * SCALE))


def scaled_s(seconds: float, least: float = 0.5) -> float:
    """Returns a duration of a full run at the scale of this one, but at least `least`."""
    return max(least, seconds * SCALE)
