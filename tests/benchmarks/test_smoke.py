"""Every benchmark still works with the code that it measures: each is run at a hundredth of its size.

Those that take seconds and start no servers are part of `make test`; the others are soak.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NAMES = sorted(path.stem for path in BENCHMARKS.glob("[a-z]*.py"))
CHEAP = frozenset(
    {
        "blob",
        "decide_idle",
        "keyed_state",
        "program_builds",
        "state_growth",
        "time_travel",
        "translation",
    }
)
TIMEOUT_S = 600


def run(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / f"{name}.py")],
        env={**os.environ, "BENCH_SCALE": "0.01"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def check(name: str) -> None:
    """It ends well, prints its figures, and leaves those of a full run alone."""
    written = BENCHMARKS / "out" / f"{name}.json"
    before = written.stat().st_mtime_ns if written.exists() else None
    done = run(name)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "load_average" in done.stdout
    assert (written.stat().st_mtime_ns if written.exists() else None) == before


def test_cheap_ones_are_there() -> None:
    assert set(NAMES) >= CHEAP


@pytest.mark.parametrize("name", sorted(CHEAP))
def test_runs(name: str) -> None:
    check(name)


@pytest.mark.integration
@pytest.mark.soak
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("name", sorted(set(NAMES) - CHEAP))
def test_runs_with_servers(name: str) -> None:
    check(name)
