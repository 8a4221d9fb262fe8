"""Live or played, at whatever speed, from wherever: what is shown at an offset is what was to be seen there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.schemas.event import Event
from tailrace.services.cli.top.event_player import Mode, Player
from tailrace.services.cli.top.log_reader import Reader
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog

from ...snapshots.simulated_logs import history
from .recorded_views import SEEDS, opened, player_of, seen, until

SEED = SEEDS[0]
LAST = history(SEED)[-1].offset


def reader_of(log: MemoryEventLog | int) -> Reader:
    made = opened(log)
    reader = Reader(made, lambda: made)
    reader.start()
    return reader


@pytest.fixture
def player() -> Iterator[Player]:
    reader = reader_of(SEED)
    yield player_of(reader)
    reader.stop()


def is_ready(player: Player) -> bool:
    return player.status().mode is not Mode.READING


def go(player: Player, place: str | None) -> None:
    player.go(place)
    until(player, lambda: is_ready(player))


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_shown_while_playing_is_the_state_at_that_offset(seed: int, data: st.DataObject) -> None:
    reader = reader_of(seed)
    try:
        player = player_of(reader, speed=data.draw(st.sampled_from([1.0, 20.0, 500.0])))
        last = history(seed)[-1].offset
        start = data.draw(st.integers(0, last))
        go(player, str(start))
        assert player.view() == seen(seed)[start]
        shown = [start]

        def over() -> bool:
            view = player.view()
            assert view == seen(seed)[view.offset]
            if view.offset != shown[-1]:
                shown.append(view.offset)
            return player.status().mode is Mode.LIVE

        until(player, over, elapsed_s=data.draw(st.sampled_from([0.1, 3.0])))
        assert shown[-1] == last
        assert shown == sorted(shown)
    finally:
        reader.stop()


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(["back", "step", "pause", "end"]) | st.integers(0, LAST), max_size=8))
def test_wherever_somebody_goes_the_view_is_that_of_the_place(moves: list[str | int]) -> None:
    reader = reader_of(SEED)
    try:
        player = player_of(reader)
        go(player, "10")
        player.pause()
        for move in moves:
            before = player.view().offset
            match move:
                case "back":
                    player.step_back()
                    expected = max(before - 1, 0)
                case "step":
                    until(player, lambda: is_ready(player))
                    player.step_on()
                    expected = None
                case "pause":
                    player.pause()
                    player.pause()
                    expected = None
                case "end":
                    player.go(None)
                    expected = LAST
                case place:
                    player.go(str(place))
                    expected = int(place)
            until(player, lambda: is_ready(player))
            view = player.view()
            assert expected is None or view.offset == expected
            assert view == seen(SEED)[view.offset]
            if player.status().mode is Mode.LIVE:
                player.pause()
    finally:
        reader.stop()


def test_who_goes_back_begins_at_a_moment_that_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.services.cli.top.event_player._KEPT_EVERY", 10)
    monkeypatch.setattr("tailrace.services.cli.top.event_player._FORGETS_AFTER", 50)
    reader = reader_of(SEED)
    try:
        player = player_of(reader)
        go(player, None)
        for place in (LAST - 1, 55, 7, 90, 54, 0):
            go(player, str(place))
            until(player, lambda wanted=place: player.view().offset >= wanted)
            view = player.view()
            assert replace(view, log=()) == replace(seen(SEED)[view.offset], log=())
            player.pause()
            player.pause()
    finally:
        reader.stop()


def test_live_shows_what_is_appended(player: Player) -> None:
    log = MemoryEventLog(Codec("histories.log"), topic="histories.log")
    events = [Event(each.header, each.body) for each in history(SEED)]
    log.append(events[:20])
    reader = reader_of(log)
    try:
        player = player_of(reader)
        go(player, None)
        assert player.status().mode is Mode.LIVE
        assert player.view() == seen(SEED)[19]
        log.append(events[20:50])
        until(player, lambda: player.view().offset == 49)
        assert player.view() == seen(SEED)[49]
    finally:
        reader.stop()


def test_an_empty_log_is_live_and_shows_nothing() -> None:
    reader = reader_of(MemoryEventLog())
    try:
        player = player_of(reader)
        go(player, None)
        assert (player.status().mode, player.view().offset) == (Mode.LIVE, -1)
    finally:
        reader.stop()


def test_a_step_is_one_event(player: Player) -> None:
    go(player, "20")
    for offset in (21, 22, 23):
        player.step_on()
        until(player, lambda wanted=offset: player.view().offset >= wanted)
        assert player.view() == seen(SEED)[offset]
        assert player.status().mode is Mode.PAUSED
    player.step_back()
    until(player, lambda: is_ready(player))
    assert player.view() == seen(SEED)[22]
    go(player, str(LAST))
    player.step_on()
    until(player, lambda: player.status().notice is not None)
    assert player.view().offset == LAST


def test_the_present_can_be_held_and_gone_on_with(player: Player) -> None:
    go(player, None)
    player.pause()
    assert player.status().mode is Mode.PAUSED
    player.pause()
    until(player, lambda: player.status().mode is Mode.LIVE)
    assert player.view().offset == LAST


def test_to_go_where_one_is_changes_nothing(player: Player) -> None:
    player.pause()
    go(player, "30")
    go(player, "30")
    player.pause()
    player.step(0.0)
    assert player.status().mode is Mode.PLAYING


def test_a_bad_place_is_told_and_changes_nothing(player: Player) -> None:
    go(player, "30")
    player.pause()
    for place, why in (
        ("nowhere", "is no place in a log"),
        ("999999", "is outside"),
        ("1970-01-01", "before"),
    ):
        player.go(place)
        until(player, lambda wanted=why: wanted in (player.status().notice or ""))
        until(player, lambda: is_ready(player))
        assert player.view() == seen(SEED)[30]
        assert player.status().mode is Mode.PAUSED


def test_silence_is_shortened_and_told(player: Player) -> None:
    go(player, "0")
    told = []

    def over() -> bool:
        status = player.status()
        if status.passed_over:
            told.append(status.passed_over)
        return status.mode is Mode.LIVE

    until(player, over, elapsed_s=0.5)
    times = [seen(SEED)[offset].time or 0 for offset in range(LAST + 1)]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert max(told) > max(gaps) - 4_000_000
