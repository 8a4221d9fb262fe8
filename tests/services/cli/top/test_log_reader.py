"""A log that goes away is told of and waited for; a file that is damaged is shown up to there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tailrace.schemas.event import Event
from tailrace.services.cli.exit_codes import CommandFailure, ExitCode
from tailrace.services.cli.top.event_player import EventPlayer, PlayerMode
from tailrace.services.cli.top.log_reader import LogReader, OpenLog
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.history.log_source import open_log_source
from tailrace.services.log import Codec, LogUnavailable
from tailrace.services.log.event_log import Concerns, OnUnreadable, Tail
from tailrace.services.log.memory import MemoryEventLog

from ...snapshots.simulated_logs import LONG, create_log, history
from .recorded_views import create_player, open_log, play_until, read_views

SEED = LONG


class Fragile(MemoryEventLog):
    """A log that can be out of reach."""

    away = False

    def end(self) -> int:
        self._check()
        return super().end()

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        self._check()
        return super().tail(start, concerns=concerns, on_unreadable=on_unreadable)

    def values_from(self, offset: int, timeout: float) -> list[bytes | None]:
        self._check()
        return super().values_from(offset, timeout)

    def close(self) -> None:
        """It outlives its readers."""

    def _check(self) -> None:
        if self.away:
            raise LogUnavailable("fragile.log can't be read: is Kafka up?")


def fragile(count: int) -> tuple[Fragile, Sequence[Event]]:
    log = Fragile(Codec("fragile.log"), topic="fragile.log")
    events = [Event(each.header, each.body) for each in history(SEED)]
    log.append(events[:count])
    return log, events


def test_a_log_that_goes_away_is_waited_for_and_read_on() -> None:
    log, events = fragile(20)

    def reopen() -> OpenLog:
        if log.away:
            raise CommandFailure(ExitCode.UNREACHABLE, "the Kafka of the cluster does not run")
        return open_log(log)

    reader = LogReader(open_log(log), reopen, retry_s=0.01)
    reader.start()
    try:
        player = create_player(reader)
        player.go_to(None)
        play_until(player, lambda: player.status().mode is PlayerMode.LIVE)
        log.away = True
        play_until(player, lambda: player.status().trouble is not None)
        assert player.status().waits
        assert player.view() == read_views(SEED)[19]
        play_until(player, lambda: "does not run" in (player.status().trouble or ""))
        log.append(events[20:60])
        log.away = False
        play_until(player, lambda: player.view().offset == 59)
        assert player.view() == read_views(SEED)[59]
        assert player.status().trouble is None
    finally:
        reader.stop()


def test_a_place_that_is_wanted_while_the_log_is_away_is_gone_to_when_it_is_back() -> None:
    log, _ = fragile(60)
    reader = LogReader(open_log(log), lambda: open_log(log), retry_s=0.01)
    reader.start()
    try:
        player = create_player(reader)
        player.go_to(None)
        play_until(player, lambda: player.status().mode is PlayerMode.LIVE)
        log.away = True
        player.go_to("30")
        play_until(player, lambda: player.status().trouble is not None)
        log.away = False
        play_until(player, lambda: player.view().offset == 30)
        player.pause()
        assert player.status().mode is PlayerMode.PAUSED
    finally:
        reader.stop()


def test_another_log_in_its_place_is_not_taken_for_it() -> None:
    log, events = fragile(60)
    other = Fragile(Codec("fragile.log"), topic="fragile.log")
    other.append(events[:5])
    reader = LogReader(open_log(log), lambda: open_log(other), retry_s=0.01)
    reader.start()
    try:
        player = create_player(reader)
        player.go_to(None)
        play_until(player, lambda: player.status().mode is PlayerMode.LIVE)
        log.away = True
        play_until(player, lambda: "another log" in (player.status().trouble or ""))
        assert player.view().offset == 59
    finally:
        reader.stop()


def test_a_damaged_file_is_shown_up_to_the_damage(tmp_path: Path) -> None:
    log = create_log(SEED)
    path = tmp_path / "damaged.jsonl"
    export(log, "sim", EventSelection(0, log.end()), path, ArchiveFormat.JSON_LINES)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[len(lines) // 2] = b"{ no JSON\n"
    path.write_bytes(b"".join(lines))
    made = OpenLog(open_log_source(path))
    reader = LogReader(made, lambda: made)
    reader.start()
    try:
        player = EventPlayer(reader, live=False, cluster="sim", speed=1000.0)
        player.go_to("0")
        play_until(player, lambda: player.status().trouble is not None, elapsed_s=10.0)
        assert not player.status().waits
        assert "is damaged at" in (player.status().trouble or "")
        player.go_to("20")
        play_until(player, lambda: player.view().offset == 20)
        assert player.view().log == read_views(SEED)[20].log
    finally:
        reader.stop()


def test_what_holds_no_event_is_passed_over_and_told() -> None:
    log, events = fragile(20)
    log.append_values([b"nonsense", None])
    log.append(events[20:40])
    reader = LogReader(open_log(log), lambda: open_log(log))
    reader.start()
    try:
        player = create_player(reader)
        player.go_to(None)
        play_until(player, lambda: player.view().offset == 41)
        told = player.status().unreadable
        assert [each.partition(":")[0] for each in told] == ["offset 20", "offset 21"]
        player.go_to("10")
        play_until(player, lambda: player.status().mode is PlayerMode.LIVE, elapsed_s=60.0)
        assert player.status().unreadable == told
    finally:
        reader.stop()
