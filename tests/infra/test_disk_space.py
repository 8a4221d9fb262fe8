"""Detection of a full disk, and its error message."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tailrace.infra.disk_space import MIN_FREE_BYTES, describe_shortage
from tailrace.infra.kafka import EmbeddedKafka, KafkaUnavailable


def test_disk_space_hint_is_empty_for_disk_with_space_and_for_missing_path(tmp_path: Path) -> None:
    assert describe_shortage(tmp_path) == ""
    assert describe_shortage(tmp_path / "missing") == ""


@pytest.mark.parametrize(
    ("free", "is_full"), [(0, True), (MIN_FREE_BYTES - 1, True), (MIN_FREE_BYTES, False)]
)
def test_disk_space_hint_names_disk_below_minimum(
    free: int, is_full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    assert (
        f"the disk of {tmp_path} is full ({free:,} bytes are free)" in describe_shortage(tmp_path)
    ) is is_full


def test_kafka_error_names_full_disk_when_broker_exits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heap of the broker is too small for it to start."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").touch()
    with pytest.raises(KafkaUnavailable) as raised:
        EmbeddedKafka(tmp_path, heap="1k").start()
    assert f"the disk of {tmp_path} is full" in str(raised.value).partition("\n")[0]
