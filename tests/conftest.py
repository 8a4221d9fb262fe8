"""Configuration of all tests: markers, the rewriting of transcripts, Hypothesis profiles and a cache for tests only.

Hypothesis has no deadlines, and accepts that examples are drawn slowly: the machine that runs the tests may be busy,
and `make test` runs the unit tests at a low priority beside the others. It draws the same examples in each run, so that
a result depends on the change only. If EXAMPLES is set, as in `make soak`, it draws other examples, and that many of
them unless a test sets its own number (tests/example_count.py).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from example_count import example_count
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tailrace.infra.jars import cache_dir

_ROOT = Path(__file__).parents[1]
_INTEGRATION = _ROOT / "tests" / "integration"
# Integration tests of one file run in one process of pytest-xdist, and so do the files of one line here: they share a
# cluster, or a runtime with its Spark, which costs more than many a test.
_SHARED_SERVERS = {
    "four_slots": (
        "test_broadcast_state",
        "test_examples",
        "test_metrics",
        "test_other_tools",
        "test_page",
        "test_programs",
        "test_rest",
        "test_savepoints",
        "test_secrets",
        "test_traces",
        "test_upgrade",
    ),
    "runtime": (
        "test_broker_restart",
        "test_exactly_once",
        "test_kafka_source",
        "test_oauth",
        "test_runtime",
        "test_runtime_checkpoints",
    ),
    "yarn": ("test_spark_on_yarn", "test_yarn", "test_yarn_application_master"),
}
_SERVERS_OF = {stem: name for name, stems in _SHARED_SERVERS.items() for stem in stems}
# What takes longest begins first: no process is to wait for it at the end.
_FIRST = (
    "test_cluster",
    "test_kill",
    *_SERVERS_OF,
    "test_blobs",
    "test_liveness",
    "test_masters",
    "test_sql",
)
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    # Hundreds of processes are started, and each would compile all that it imports, or pytest the tests.
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(_ROOT / ".pytest_cache" / "bytecode")
    sys.dont_write_bytecode = False

settings.register_profile(
    "tailrace",
    deadline=None,
    derandomize="EXAMPLES" not in os.environ,
    max_examples=example_count(20),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tailrace")


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps history indexes of tests apart from those of the user; uses the user's cache of jars."""
    own = tmp_path_factory.mktemp("cache")
    for name in ("jars", "cds"):
        (shared := cache_dir() / name).mkdir(parents=True, exist_ok=True)
        (own / name).symlink_to(shared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAILRACE_CACHE_DIR", str(own))
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Lets no finalizer run while a failure is formatted. Python 3.11 cannot parse within the parser (CPython's issue
    106905), and a ResourceWarning of a finalizer is formatted, too: the whole run would end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


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
    parser.addoption("--seeds", type=int, default=50, help="how many seeds to run (default: 50)")
    parser.addoption("--first-seed", type=int, default=0, help="the first of them (default: 0)")


class _SchedulingByServers(LoadFileScheduling):
    """Runs the tests that share servers in one process."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return _SERVERS_OF.get(Path(file).stem, file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _SchedulingByServers | None:
    return _SchedulingByServers(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignores integration tests in a run of unit tests, and the reverse: neither imports the files of the other."""
    markers = config.getoption("markexpr")
    if markers.startswith("not integration"):
        return collection_path == _INTEGRATION or None
    if markers.startswith("integration") and collection_path.name.startswith("test_"):
        marked = collection_path.is_relative_to(
            _INTEGRATION
        ) or "mark.integration" in collection_path.read_text("utf-8")
        return not marked or None
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {stem: number for number, stem in enumerate(_FIRST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))
    for item in items:
        if item.path.is_relative_to(_INTEGRATION):
            item.add_marker(pytest.mark.integration)
        for servers in _SHARED_SERVERS.keys() & set(getattr(item, "fixturenames", ())):
            if _SERVERS_OF.get(item.path.stem) != servers:
                raise pytest.UsageError(
                    f"{item.path} uses `{servers}`: add it to _SHARED_SERVERS in tests/conftest.py, or they start twice"
                )


def pytest_unconfigure() -> None:
    """Closes stderr, so that the summary is printed last: librdkafka's threads write to stderr until the process
    ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
