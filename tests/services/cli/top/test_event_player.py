"""Live or played, at whatever speed, from wherever: what is shown at an offset is what was to be seen there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.schemas.event import Event
from tailrace.services.cli.top.event_player import EventPlayer, PlayerMode
from tailrace.services.cli.top.log_reader import LogReader
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog

from ...snapshots.simulated_logs import history
from .recorded_views import SEEDS, create_player, open_log, play_until, read_views

SEED = SEEDS[0]
LAST = history(SEED)[-1].offset


def reader_of(log: MemoryEventLog | int) -> LogReader:
    made = open_log(log)
    reader = LogReader(made, lambda: made)
    reader.start()
    return reader


@pytest.fixture
def player() -> Iterator[EventPlayer]:
    reader = reader_of(SEED)
    yield create_player(reader)
    reader.stop()


def is_ready(player: EventPlayer) -> bool:
    return player.status().mode is not PlayerMode.READING


def go(player: EventPlayer, place: str | None) -> None:
    player.go_to(place)
    play_until(player, lambda: is_ready(player))


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_shown_while_playing_is_the_state_at_that_offset(seed: int, data: st.DataObject) -> None:
    reader = reader_of(seed)
    try:
        player = create_player(reader, speed=data.draw(st.sampled_from([1.0, 20.0, 500.0])))
        last = history(seed)[-1].offset
        start = data.draw(st.integers(0, last))
        go(player, str(start))
        assert player.view() == read_views(seed)[start]
        shown = [start]

        def over() -> bool:
            view = player.view()
            assert view == read_views(seed)[view.offset]
            if view.offset != shown[-1]:
                shown.append(view.offset)
            return player.status().mode is PlayerMode.LIVE

        play_until(player, over, elapsed_s=data.draw(st.sampled_from([0.1, 3.0])))
        assert shown[-1] == last
        assert shown == sorted(shown)
    finally:
        reader.stop()


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(["back", "step", "pause", "end"]) | st.integers(0, LAST), max_size=8))
def test_wherever_somebody_goes_the_view_is_that_of_the_place(moves: list[str | int]) -> None:
    reader = reader_of(SEED)
    try:
        player = create_player(reader)
        go(player, "10")
        player.pause()
        for move in moves:
            before = player.view().offset
            match move:
                case "back":
                    player.step_back()
                    expected = max(before - 1, 0)
                case "step":
                    play_until(player, lambda: is_ready(player))
                    player.step_on()
                    expected = None
                case "pause":
                    player.pause()
                    player.pause()
                    expected = None
                case "end":
                    player.go_to(None)
                    expected = LAST
                case place:
                    player.go_to(str(place))
                    expected = int(place)
            play_until(player, lambda: is_ready(player))
            view = player.view()
            assert expected is None or view.offset == expected
            assert view == read_views(SEED)[view.offset]
            if player.status().mode is PlayerMode.LIVE:
                player.pause()
    finally:
        reader.stop()


def test_who_goes_back_begins_at_a_moment_that_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.services.cli.top.event_player._COPY_EVERY_EVENTS", 10)
    monkeypatch.setattr("tailrace.services.cli.top.event_player._RESTART_AFTER_EVENTS", 50)
    reader = reader_of(SEED)
    try:
        player = create_player(reader)
        go(player, None)
        for place in (LAST - 1, 55, 7, 90, 54, 0):
            go(player, str(place))
            play_until(player, lambda wanted=place: player.view().offset >= wanted)
            view = player.view()
            assert replace(view, log=()) == replace(read_views(SEED)[view.offset], log=())
            player.pause()
            player.pause()
    finally:
        reader.stop()


def test_live_shows_what_is_appended(player: EventPlayer) -> None:
    log = MemoryEventLog(Codec("histories.log"), topic="histories.log")
    events = [Event(each.header, each.body) for each in history(SEED)]
    log.append(events[:20])
    reader = reader_of(log)
    try:
        player = create_player(reader)
        go(player, None)
        assert player.status().mode is PlayerMode.LIVE
        assert player.view() == read_views(SEED)[19]
        log.append(events[20:50])
        play_until(player, lambda: player.view().offset == 49)
        assert player.view() == read_views(SEED)[49]
    finally:
        reader.stop()


def test_an_empty_log_is_live_and_shows_nothing() -> None:
    reader = reader_of(MemoryEventLog())
    try:
        player = create_player(reader)
        go(player, None)
        assert (player.status().mode, player.view().offset) == (PlayerMode.LIVE, -1)
    finally:
        reader.stop()


def test_a_step_is_one_event(player: EventPlayer) -> None:
    go(player, "20")
    for offset in (21, 22, 23):
        player.step_on()
        play_until(player, lambda wanted=offset: player.view().offset >= wanted)
        assert player.view() == read_views(SEED)[offset]
        assert player.status().mode is PlayerMode.PAUSED
    player.step_back()
    play_until(player, lambda: is_ready(player))
    assert player.view() == read_views(SEED)[22]
    go(player, str(LAST))
    player.step_on()
    play_until(player, lambda: player.status().notice is not None)
    assert player.view().offset == LAST


def test_the_present_can_be_held_and_gone_on_with(player: EventPlayer) -> None:
    go(player, None)
    player.pause()
    assert player.status().mode is PlayerMode.PAUSED
    player.pause()
    play_until(player, lambda: player.status().mode is PlayerMode.LIVE)
    assert player.view().offset == LAST


def test_to_go_where_one_is_changes_nothing(player: EventPlayer) -> None:
    player.pause()
    go(player, "30")
    go(player, "30")
    player.pause()
    player.step(0.0)
    assert player.status().mode is PlayerMode.PLAYING


def test_a_bad_place_is_told_and_changes_nothing(player: EventPlayer) -> None:
    go(player, "30")
    player.pause()
    for place, why in (
        ("nowhere", "is no place in a log"),
        ("999999", "is outside"),
        ("1970-01-01", "before"),
    ):
        player.go_to(place)
        play_until(player, lambda wanted=why: wanted in (player.status().notice or ""))
        play_until(player, lambda: is_ready(player))
        assert player.view() == read_views(SEED)[30]
        assert player.status().mode is PlayerMode.PAUSED


def test_silence_is_shortened_and_told(player: EventPlayer) -> None:
    go(player, "0")
    told = []

    def over() -> bool:
        status = player.status()
        if status.passed_over:
            told.append(status.passed_over)
        return status.mode is PlayerMode.LIVE

    play_until(player, over, elapsed_s=0.5)
    times = [read_views(SEED)[offset].time or 0 for offset in range(LAST + 1)]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert max(told) > max(gaps) - 4_000_000
