"""Whether a disk is full, and what is said then."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tailrace.infra.disk_space import MIN_FREE_BYTES, describe_shortage
from tailrace.infra.kafka import EmbeddedKafka, KafkaUnavailable


def test_a_disk_with_room_or_none_at_all_is_not_mentioned(tmp_path: Path) -> None:
    assert describe_shortage(tmp_path) == ""
    assert describe_shortage(tmp_path / "missing") == ""


@pytest.mark.parametrize(
    ("free", "is_full"), [(0, True), (MIN_FREE_BYTES - 1, True), (MIN_FREE_BYTES, False)]
)
def test_a_full_disk_is_named(
    free: int, is_full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    assert (
        f"the disk of {tmp_path} is full ({free:,} bytes are free)" in describe_shortage(tmp_path)
    ) is is_full


def test_a_kafka_that_ends_on_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its heap is too small for it to start."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").touch()
    with pytest.raises(KafkaUnavailable) as raised:
        EmbeddedKafka(tmp_path, heap="1k").start()
    assert f"the disk of {tmp_path} is full" in str(raised.value).partition("\n")[0]
