"""Runs random clusters, one per seed (`simulation_chaos`).

`pytest tests/services/simulated_cluster/test_chaos.py --seed 1234` runs one seed again, whatever `--seeds` says. A
failure leaves the log of its run in a file, which `python -m tests.log_checker` reads too.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest

from ...log_checker import dump
from .chaos import Chaos
from .invariants import plain


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        option = metafunc.config.getoption
        one, first, count = option("--seed"), option("--first-seed"), option("--seeds")
        metafunc.parametrize("seed", [one] if one is not None else range(first, first + count))


def test_invariants_hold_in_random_cluster(seed: int) -> None:
    # In every second run an outsider writes to the log as well, in every third one the hosts have own clocks, in most
    # operators quarantine TaskExecutors, and pause and restart jobs, in most jobs are rescaled, in some jobs have
    # autoscalers, and in some the adaptive scheduler.
    chaos = Chaos(
        random.Random(seed),
        outsiders=random.Random(seed) if seed % 2 else None,
        clocks=random.Random(seed) if seed % 3 == 0 else None,
        operators=random.Random(seed) if seed % 4 else None,
        rescales=random.Random(seed) if seed % 5 else None,
        autoscales=random.Random(seed) if seed % 7 in (0, 3) else None,
        slots=random.Random(seed) if seed % 11 in (2, 5, 6, 9) else None,
    )
    try:
        chaos.run()
    except Exception as error:
        path = Path(tempfile.gettempdir()) / f"tailrace-seed-{seed}.jsonl"
        path.write_text("".join(f"{line}\n" for line in dump(plain(chaos.world.log))), "utf-8")
        error.add_note(
            f"again: pytest tests/services/simulated_cluster/test_chaos.py --seed {seed}\nits log: {path}"
        )
        raise
