"""A watch of files says once that one has changed, and not before all can be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.infra import file_versions
from tailrace.infra.file_versions import FileWatch
from tailrace.infra.kafka_connection import KafkaConnection


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_versions, "_INTERVAL_S", 0.0)


def test_change_is_noticed_once(tmp_path: Path) -> None:
    file = tmp_path / "file"
    watch = FileWatch([file])
    assert not watch.has_changed()
    file.write_text("first")
    assert watch.has_changed()
    assert not watch.has_changed()
    file.write_text("second")
    assert watch.has_changed()
    file.unlink()
    assert watch.has_changed()


def test_password_that_is_being_written_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("before\n")
    watch = KafkaConnection("host:1", {"sasl.password-file": str(file)}).watch()
    file.write_text("")
    assert not watch.has_changed()
    file.write_text("after it\n")
    assert watch.has_changed()
