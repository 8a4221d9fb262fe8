"""The player shows at an offset the same view live and in playback, at any speed, from any position."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.schemas.event import Event
from tailrace.services.cli.top.event_player import EventPlayer, PlayerMode
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog

from ...snapshots.simulated_logs import history
from .recorded_views import SEEDS, go, is_ready, open_player, play_until, read_views

SEED = SEEDS[0]
LAST = history(SEED)[-1].offset


@pytest.fixture
def player() -> Iterator[EventPlayer]:
    with open_player(SEED) as player:
        yield player


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_view_during_playback_is_state_at_its_offset(seed: int, data: st.DataObject) -> None:
    with open_player(seed, speed=data.draw(st.sampled_from([1.0, 20.0, 500.0]))) as player:
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


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(["back", "step", "pause", "end"]) | st.integers(0, LAST), max_size=8))
def test_view_after_jump_is_that_of_position(moves: list[str | int]) -> None:
    with open_player(SEED) as player:
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


def test_jump_back_starts_at_cached_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.services.cli.top.event_player._COPY_EVERY_EVENTS", 10)
    monkeypatch.setattr("tailrace.services.cli.top.event_player._RESTART_AFTER_EVENTS", 50)
    with open_player(SEED) as player:
        go(player, None)
        for place in (LAST - 1, 55, 7, 90, 54, 0):
            go(player, str(place))
            play_until(player, lambda wanted=place: player.view().offset >= wanted)
            view = player.view()
            assert replace(view, log=()) == replace(read_views(SEED)[view.offset], log=())
            player.pause()
            player.pause()


def test_live_mode_shows_appended_events(player: EventPlayer) -> None:
    log = MemoryEventLog(Codec("histories.log"), topic="histories.log")
    events = [Event(record.header, record.body) for record in history(SEED)]
    log.append(events[:20])
    with open_player(log) as player:
        go(player, None)
        assert player.status().mode is PlayerMode.LIVE
        assert player.view() == read_views(SEED)[19]
        log.append(events[20:50])
        play_until(player, lambda: player.view().offset == 49)
        assert player.view() == read_views(SEED)[49]


def test_empty_log_is_live_and_shows_nothing() -> None:
    with open_player(MemoryEventLog()) as player:
        go(player, None)
        assert (player.status().mode, player.view().offset) == (PlayerMode.LIVE, -1)


def test_step_is_one_event(player: EventPlayer) -> None:
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


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_keys_that_come_faster_than_the_player_reads_all_count(
    player: EventPlayer, moves: list[tuple[bool, bool]]
) -> None:
    """`moves`: whether the move is one event on, and whether the player makes a step after it."""
    go(player, "30")
    for is_on, is_followed_by_step in moves:
        player.submit(player.step_on if is_on else player.step_back)
        if is_followed_by_step:
            player.step(0.0)
    player.step(0.0)  # no command is left for the next example, which has the same player
    expected = 30 + sum(1 if is_on else -1 for is_on, _ in moves)
    play_until(player, lambda: is_ready(player) and player.view().offset == expected)


def test_live_mode_can_be_paused_and_resumed(player: EventPlayer) -> None:
    go(player, None)
    player.pause()
    assert player.status().mode is PlayerMode.PAUSED
    player.pause()
    play_until(player, lambda: player.status().mode is PlayerMode.LIVE)
    assert player.view().offset == LAST


def test_jump_to_current_position_changes_nothing(player: EventPlayer) -> None:
    player.pause()
    go(player, "30")
    go(player, "30")
    player.pause()
    player.step(0.0)
    assert player.status().mode is PlayerMode.PLAYING


def test_invalid_position_is_reported_and_changes_nothing(player: EventPlayer) -> None:
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


def test_idle_time_is_shortened_and_reported(player: EventPlayer) -> None:
    go(player, "0")
    reports = []

    def over() -> bool:
        status = player.status()
        if status.skipped:
            reports.append(status.skipped)
        return status.mode is PlayerMode.LIVE

    play_until(player, over, elapsed_s=0.5)
    times = [read_views(SEED)[offset].time or 0 for offset in range(LAST + 1)]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert max(reports) > max(gaps) - 4_000_000
