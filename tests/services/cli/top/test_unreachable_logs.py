"""A log that becomes unreachable is reported and waited for; a damaged file is shown up to the damage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tailrace.schemas.event import Event
from tailrace.services.cli.exit_codes import CommandFailure, ExitCode
from tailrace.services.cli.top.event_player import EventPlayer, OpenLog, PlayerMode
from tailrace.services.history.archive import avro_file
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.history.log_source import open_log_source
from tailrace.services.log import Codec, LogUnavailable
from tailrace.services.log.event_log import Concerns, OnUnreadable, Tail
from tailrace.services.log.memory import Entry, MemoryEventLog

from ...history.archive.archive_files import damage_block
from ...snapshots.simulated_logs import LONG, create_log, history
from .recorded_views import open_log, open_player, play_until, read_views

SEED = LONG


class Fragile(MemoryEventLog):
    """A log that can become unreachable."""

    away = False

    def end(self) -> int:
        self._check()
        return super().end()

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        self._check()
        return super().tail(start, concerns=concerns, on_unreadable=on_unreadable)

    def entries_from(self, offset: int, timeout_s: float) -> list[Entry]:
        self._check()
        return super().entries_from(offset, timeout_s)

    def close(self) -> None:
        """Does nothing: the log outlives its readers."""

    def _check(self) -> None:
        if self.away:
            raise LogUnavailable("fragile.log can't be read: is Kafka up?")


def fragile(count: int) -> tuple[Fragile, Sequence[Event]]:
    log = Fragile(Codec("fragile.log"), topic="fragile.log")
    events = [Event(record.header, record.body) for record in history(SEED)]
    log.append(events[:count])
    return log, events


def test_unreachable_log_is_waited_for_and_read_on() -> None:
    log, events = fragile(20)

    def reopen() -> OpenLog:
        if log.away:
            raise CommandFailure(ExitCode.UNREACHABLE, "the Kafka of the cluster does not run")
        return open_log(log)

    with open_player(log, reopen) as player:
        player.go_to(None)
        play_until(player, lambda: player.status().mode is PlayerMode.LIVE)
        log.away = True
        play_until(player, lambda: player.status().trouble is not None)
        assert player.status().retries
        assert player.view() == read_views(SEED)[19]
        play_until(player, lambda: "does not run" in (player.status().trouble or ""))
        log.append(events[20:60])
        log.away = False
        play_until(player, lambda: player.view().offset == 59)
        assert player.view() == read_views(SEED)[59]
        assert player.status().trouble is None


def test_jump_during_outage_is_done_afterwards() -> None:
    log, _ = fragile(60)
    with open_player(log, lambda: open_log(log)) as player:
        player.go_to(None)
        play_until(player, lambda: player.status().mode is PlayerMode.LIVE)
        log.away = True
        player.go_to("30")
        play_until(player, lambda: player.status().trouble is not None)
        log.away = False
        play_until(player, lambda: player.view().offset == 30)
        player.pause()
        assert player.status().mode is PlayerMode.PAUSED


def test_other_log_in_its_place_is_detected() -> None:
    log, events = fragile(60)
    other = Fragile(Codec("fragile.log"), topic="fragile.log")
    other.append(events[:5])
    with open_player(log, lambda: open_log(other)) as player:
        player.go_to(None)
        play_until(player, lambda: player.status().mode is PlayerMode.LIVE)
        log.away = True
        play_until(player, lambda: "another log" in (player.status().trouble or ""))
        assert player.view().offset == 59


def test_damaged_file_is_shown_up_to_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = create_log(SEED)
    path = tmp_path / "damaged.avro"
    monkeypatch.setattr(avro_file, "_BLOCK", 2_000)
    export(log, "sim", EventSelection(0, log.end()), path, ArchiveFormat.AVRO)
    damage_block(path, 5)
    made = OpenLog(open_log_source(path))
    player = EventPlayer(made, lambda: made, speed=1000.0)
    try:
        player.go_to("0")
        play_until(player, lambda: player.status().trouble is not None, elapsed_s=10.0)
        assert not player.status().retries
        assert "is damaged at" in (player.status().trouble or "")
        player.go_to("10")
        play_until(player, lambda: player.view().offset == 10)
        assert player.view().log == read_views(SEED)[10].log
    finally:
        player.stop()


def test_undecodable_records_are_skipped_and_reported() -> None:
    log, events = fragile(20)
    log.append_values([b"nonsense", None])
    log.append(events[20:40])
    with open_player(log, lambda: open_log(log)) as player:
        player.go_to(None)
        play_until(player, lambda: player.view().offset == 41)
        reports = player.status().unreadable
        assert [report.partition(":")[0] for report in reports] == ["offset 20", "offset 21"]
        player.go_to("10")
        play_until(player, lambda: player.status().mode is PlayerMode.LIVE, elapsed_s=60.0)
        assert player.status().unreadable == reports
