"""What all tests share: the marker of those that need real parts, how transcripts are written anew, and Hypothesis.

Hypothesis has no deadlines, since the machine that runs the tests may be busy. It draws the same examples each time,
so that a change is judged by what it changes; with EXAMPLES set, as `make soak` does, it draws others.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

_ROOT = Path(__file__).parents[1]
_INTEGRATION = _ROOT / "tests" / "integration"
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    # Hundreds of processes are started, and each would compile all that it imports, or pytest the tests.
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(_ROOT / ".pytest_cache" / "bytecode")
    sys.dont_write_bytecode = False

settings.register_profile("tailrace", deadline=None, derandomize="EXAMPLES" not in os.environ)
settings.load_profile("tailrace")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        help="write tests/services/transcripts anew; commit what changed only if you understand why it did",
    )
    parser.addoption(
        "--seed", type=int, help="run this seed of tests/services/test_simulation.py, and no other"
    )
    parser.addoption("--seeds", type=int, default=300, help="how many seeds to run (default: 300)")
    parser.addoption("--first-seed", type=int, default=0, help="the first of them (default: 0)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_INTEGRATION):
            item.add_marker(pytest.mark.integration)
