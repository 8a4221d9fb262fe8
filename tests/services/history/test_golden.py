"""Logs that each release has left behind are read, folded and decided again by this one, for ever.

`tests/golden/<version>/` holds the log of each scenario as that release said it, in Avro with the schemas of then.
`pytest tests/services/history/test_golden.py --record-golden` records those of the version in `__init__.py`, for its
release; an earlier one's are never written again. Where one fails, a change of logic wants a feature level
(services/core/feature_level.py), a change of schemas a default.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tailrace
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.history.replay import DecisionCheck
from tailrace.services.history.time_travel import state_hash
from tailrace.services.log.event_log import read_to_end
from tailrace.services.snapshots.fingerprint import schema_fingerprint

from ..scenarios import SCENARIOS
from ..snapshots.simulated_logs import WALKS, create_log, create_quiet_replica

GOLDEN = Path(__file__).parents[2] / "golden"
RELEASES = sorted(path.name for path in GOLDEN.iterdir())
NAMES = [*SCENARIOS, *(f"walk_{number}" for number in WALKS)]
FILES = sorted(each.relative_to(GOLDEN).as_posix() for each in GOLDEN.glob("*/*.avro"))
HASHES = "state_hashes.json"


def test_each_scenario_has_its_log_when_a_release_is_recorded(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = GOLDEN if request.config.getoption("--record-golden") else tmp_path
    release = folder / tailrace.__version__
    record(release)
    assert {path.stem for path in release.glob("*.avro")} == set(recorded(release)["hashes"]) == set(NAMES)


@pytest.mark.parametrize("version", RELEASES)
def test_each_log_of_a_release_has_its_hash(version: str) -> None:
    release = GOLDEN / version
    assert {path.stem for path in release.glob("*.avro")} == set(recorded(release)["hashes"])


@pytest.mark.parametrize("name", FILES)
def test_what_was_said_then_is_what_is_owed_today(name: str) -> None:
    path = GOLDEN / name
    check = replayed(path)
    known = recorded(path.parent)
    if known["states"] == schema_fingerprint():
        assert state_hash(check.replica) == known["hashes"][path.stem]


def replayed(path: Path) -> DecisionCheck:
    check = DecisionCheck(create_quiet_replica())
    log = FileLog.open(path)
    try:
        for batch in read_to_end(log):
            assert [each.line() for each in check.check_all(batch)] == []
    finally:
        log.close()
    check.finish()
    assert check.counts.events == log.description.entries
    assert check.counts.decided > 0
    return check


def recorded(version: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((version / HASHES).read_text("utf-8"))
    return found


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
