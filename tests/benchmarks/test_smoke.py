"""Every benchmark runs with the present code, at a hundredth of its size.

Those that take seconds and start no servers are part of `make test`; the others have the marker soak.
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
        "worst_cases",
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
    """Runs the benchmark: it exits with 0, prints its figures, and keeps the figures of a full run."""
    written = BENCHMARKS / "out" / f"{name}.json"
    before = written.stat().st_mtime_ns if written.exists() else None
    result = run(name)
    assert result.returncode == 0, result.stderr[-4000:]
    assert "load_average" in result.stdout
    assert (written.stat().st_mtime_ns if written.exists() else None) == before


def test_list_of_cheap_benchmarks_is_current() -> None:
    assert set(NAMES) >= CHEAP


@pytest.mark.parametrize("name", sorted(CHEAP))
def test_benchmark_runs(name: str) -> None:
    check(name)


@pytest.mark.integration
@pytest.mark.soak
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("name", sorted(set(NAMES) - CHEAP))
def test_benchmark_runs_with_servers(name: str) -> None:
    check(name)
