"""The virtual clock: it goes with the speed, never back, and nobody waits for long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.services.cli.top.playback_clock import LONGEST_WAIT_S, SPEEDS, PlaybackClock

SECOND = 1_000_000

speeds = st.sampled_from(SPEEDS)
moments = st.integers(0, 10**15)
elapsed = st.floats(0, 10)


@given(moments, speeds, elapsed, st.integers(0, 10**12))
def test_no_wait_is_longer_than_the_longest(time: int, speed: float, seconds: float, gap: int) -> None:
    due = time + gap
    after = PlaybackClock(time, speed).after(seconds, due)
    assert after.time >= time
    assert (due - after.time) / SECOND / speed <= LONGEST_WAIT_S + 1e-6


@given(moments, speeds, elapsed, st.integers(0, 10**12))
def test_what_is_left_out_is_told(time: int, speed: float, seconds: float, gap: int) -> None:
    after = PlaybackClock(time, speed).after(seconds, time + gap)
    assert after.time == time + round(seconds * speed * SECOND) + after.passed_over


@given(moments, speeds, elapsed)
def test_the_clock_stands_while_it_is_paused_and_where_nothing_comes(
    time: int, speed: float, seconds: float
) -> None:
    playing, paused = PlaybackClock(time, speed), PlaybackClock(time, speed, paused=True)
    assert playing.after(seconds, None) == playing
    assert paused.after(seconds, time + SECOND) == paused


def test_speed_is_how_many_times_as_fast() -> None:
    playback = PlaybackClock(0, 10.0)
    assert playback.after(0.5, 8 * SECOND).time == 5 * SECOND


def test_faster_and_slower_go_through_the_speeds_and_stop_at_their_ends() -> None:
    at = PlaybackClock(0, SPEEDS[0])
    for speed in SPEEDS[1:]:
        at = at.faster()
        assert at.speed == speed
    assert at.faster() == at
    assert replace(at, speed=7.0).slower().speed == 5.0
    assert replace(at, speed=7.0).faster().speed == 10.0
    assert replace(at, speed=SPEEDS[0]).slower().speed == SPEEDS[0]


def test_an_event_that_was_told_ends_the_silence_before_it() -> None:
    waiting = PlaybackClock(0).after(0.0, 3600 * SECOND)
    assert waiting.passed_over > 0
    told = waiting.reached(3600 * SECOND)
    assert (told.time, told.passed_over) == (3600 * SECOND, 0)
