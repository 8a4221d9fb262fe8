"""The golden logs of every release are read, folded and recomputed by this one, for ever.

`tests/golden/<version>/` has the log of each scenario as that release wrote it, in Avro with its schemas. `pytest
tests/services/history/test_golden.py --record-golden` records those of the version in `__init__.py`, for its release;
the logs of earlier releases are never rewritten. If a test fails, a change of logic needs a feature level
(services/core/feature_level.py), and a change of schemas a default.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

import tailrace
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.history.replay import DecisionCheck
from tailrace.services.history.time_travel import state_hash
from tailrace.services.log.event_log import read_to_end
from tailrace.services.snapshots.fingerprint import schema_fingerprint
from tailrace.services.snapshots.migration import StateMigration
from tailrace.services.snapshots.migrations import MIGRATIONS
from tailrace.services.snapshots.snapshot_file import own_types
from tailrace.services.snapshots.type_description import StateTypes

from ..scenarios import SCENARIOS
from ..snapshots.simulated_logs import WALKS, create_log, create_quiet_replica

GOLDEN = Path(__file__).parents[2] / "golden"
RELEASES = sorted(path.name for path in GOLDEN.iterdir())
NAMES = [*SCENARIOS, *(f"walk_{number}" for number in WALKS)]
FILES = sorted(path.relative_to(GOLDEN).as_posix() for path in GOLDEN.glob("*/*.avro"))
HASHES = "state_hashes.json"
TYPES = "state_types.json"


class RecordedTypes(msgspec.Struct, frozen=True):
    """The types of states of a release, and the number of the steps that it knew."""

    migrations: int
    types: StateTypes


def test_every_scenario_has_golden_log_of_recorded_release(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = GOLDEN if request.config.getoption("--record-golden") else tmp_path
    release = folder / tailrace.__version__
    record(release)
    assert {path.stem for path in release.glob("*.avro")} == set(recorded(release)["hashes"]) == set(NAMES)


@pytest.mark.parametrize("version", RELEASES)
def test_golden_log_has_recorded_state_hash(version: str) -> None:
    release = GOLDEN / version
    assert {path.stem for path in release.glob("*.avro")} == set(recorded(release)["hashes"])


@pytest.mark.parametrize("name", FILES)
def test_recorded_decisions_equal_present_ones(name: str) -> None:
    path = GOLDEN / name
    check = replayed(path)
    known = recorded(path.parent)
    if known["states"] == schema_fingerprint():
        assert state_hash(check.replica) == known["hashes"][path.stem]


@pytest.mark.parametrize("version", RELEASES)
def test_snapshots_of_release_are_readable(version: str) -> None:
    """If it fails, a change of a state needs a step in services/snapshots/migrations.py."""
    recorded_types = msgspec.json.decode((GOLDEN / version / TYPES).read_bytes(), type=RecordedTypes)
    StateMigration(recorded_types.types, own_types(), MIGRATIONS[recorded_types.migrations :])


def replayed(path: Path) -> DecisionCheck:
    check = DecisionCheck(create_quiet_replica())
    log = FileLog.open(path)
    try:
        for batch in read_to_end(log):
            assert [difference.line() for difference in check.check_all(batch)] == []
    finally:
        log.close()
    check.finish()
    assert check.counts.events == log.description.entries
    assert check.counts.decided > 0
    return check


def recorded(version: Path) -> dict[str, dict[str, str]]:
    result: dict[str, dict[str, str]] = json.loads((version / HASHES).read_text("utf-8"))
    return result


def record(release: Path) -> None:
    release.mkdir(parents=True, exist_ok=True)
    for stale in release.glob("*.avro"):
        stale.unlink()
    hashes = {}
    for name in NAMES:
        log = create_log(int(name.removeprefix("walk_")) if name.startswith("walk_") else name)
        path = release / f"{name}.avro"
        export(log, "golden", EventSelection(0, log.end()), path, ArchiveFormat.AVRO)
        hashes[name] = state_hash(replayed(path).replica)
    text = json.dumps({"states": schema_fingerprint(), "hashes": hashes}, indent=2)
    (release / HASHES).write_text(f"{text}\n", "utf-8")
    types = RecordedTypes(len(MIGRATIONS), own_types())
    (release / TYPES).write_bytes(msgspec.json.format(msgspec.json.encode(types), indent=1) + b"\n")
