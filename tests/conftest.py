"""What all tests share: the marker of those that need real parts, how transcripts are written anew, Hypothesis, and a
cache of their own.

Hypothesis has no deadlines, since the machine that runs the tests may be busy. It draws the same examples each time,
so that a change is judged by what it changes; with EXAMPLES set, as `make soak` does, it draws others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tailrace.infra.jars import cache_dir

_ROOT = Path(__file__).parents[1]
_INTEGRATION = _ROOT / "tests" / "integration"
_LONGEST = {
    "test_torture",
    "test_liveness",
    "test_cluster",
    "test_sql",
    "test_kill",
    "test_masters",
    "test_blobs",
}
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    # Hundreds of processes are started, and each would compile all that it imports, or pytest the tests.
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(_ROOT / ".pytest_cache" / "bytecode")
    sys.dont_write_bytecode = False

settings.register_profile("tailrace", deadline=None, derandomize="EXAMPLES" not in os.environ)
settings.load_profile("tailrace")


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """History indexes of this machine are neither found nor left there by tests; its jars are used."""
    own = tmp_path_factory.mktemp("cache")
    for name in ("jars", "cds"):
        (shared := cache_dir() / name).mkdir(parents=True, exist_ok=True)
        (own / name).symlink_to(shared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAILRACE_CACHE_DIR", str(own))
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        help="write tests/services/transcripts anew; commit what changed only if you understand why it did",
    )
    parser.addoption(
        "--record-golden",
        action="store_true",
        help="record tests/golden/<version>/ anew; only before that version is released",
    )
    parser.addoption(
        "--seed",
        type=int,
        help="run this seed of tests/services/simulated_cluster/test_chaos.py, and no other",
    )
    parser.addoption("--seeds", type=int, default=300, help="how many seeds to run (default: 300)")
    parser.addoption("--first-seed", type=int, default=0, help="the first of them (default: 0)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Several files run at the same time: no process is to wait for a long one at the end.
    items.sort(key=lambda item: item.path.stem not in _LONGEST)
    for item in items:
        if item.path.is_relative_to(_INTEGRATION):
            item.add_marker(pytest.mark.integration)


def pytest_unconfigure() -> None:
    """Nothing follows the summary: librdkafka's threads write to stderr until the process ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
