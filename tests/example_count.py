"""The number of random examples of a test: few in `make test`, EXAMPLES in `make soak`."""

from __future__ import annotations

import os


def example_count(usual: int) -> int:
    """Returns `usual`, or EXAMPLES if that is set and larger."""
    return max(usual, int(os.environ.get("EXAMPLES", usual)))
