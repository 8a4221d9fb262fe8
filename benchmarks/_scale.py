"""How large a benchmark's run is: BENCH_SCALE, a factor of its counts and durations.

1 is what figures are measured with. The smoke test (tests/benchmarks) runs every benchmark at a hundredth of its size,
which shows that it still works with the code that it measures, and no more. Such a run writes no figures.
"""

from __future__ import annotations

import os
from typing import Final

SCALE: Final = float(os.environ.get("BENCH_SCALE", "1"))


def scaled(count: int, least: int = 1) -> int:
    """A count of a full run at the scale of this one, but at least `least`."""
    return max(least, round(count * SCALE))


def scaled_s(seconds: float, least: float = 0.5) -> float:
    """A duration of a full run at the scale of this one, but at least `least`."""
    return max(least, seconds * SCALE)
