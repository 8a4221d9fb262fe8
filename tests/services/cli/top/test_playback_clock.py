"""The virtual clock follows the speed, never goes back, and limits each wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.services.cli.top.playback_clock import MAX_WAIT_S, SPEEDS, PlaybackClock

SECOND = 1_000_000

speeds = st.sampled_from(SPEEDS)
moments = st.integers(0, 10**15)
elapsed = st.floats(0, 10)


@given(moments, speeds, elapsed, st.integers(0, 10**12))
def test_wait_is_at_most_the_limit(time: int, speed: float, seconds: float, gap: int) -> None:
    due = time + gap
    after = PlaybackClock(time, speed).after(seconds, due)
    assert after.time >= time
    assert (due - after.time) / SECOND / speed <= MAX_WAIT_S + 1e-6


@given(moments, speeds, elapsed, st.integers(0, 10**12))
def test_skipped_time_is_reported(time: int, speed: float, seconds: float, gap: int) -> None:
    after = PlaybackClock(time, speed).after(seconds, time + gap)
    assert after.time == time + round(seconds * speed * SECOND) + after.skipped


@given(moments, speeds, elapsed)
def test_clock_stands_while_paused_or_without_events(time: int, speed: float, seconds: float) -> None:
    playing, paused = PlaybackClock(time, speed), PlaybackClock(time, speed, paused=True)
    assert playing.after(seconds, None) == playing
    assert paused.after(seconds, time + SECOND) == paused


def test_speed_is_factor_of_real_time() -> None:
    playback = PlaybackClock(0, 10.0)
    assert playback.after(0.5, 8 * SECOND).time == 5 * SECOND


def test_faster_and_slower_step_through_speeds_within_bounds() -> None:
    at = PlaybackClock(0, SPEEDS[0])
    for speed in SPEEDS[1:]:
        at = at.faster()
        assert at.speed == speed
    assert at.faster() == at
    assert replace(at, speed=7.0).slower().speed == 5.0
    assert replace(at, speed=7.0).faster().speed == 10.0
    assert replace(at, speed=SPEEDS[0]).slower().speed == SPEEDS[0]


def test_event_ends_idle_time_before_it() -> None:
    waiting = PlaybackClock(0).after(0.0, 3600 * SECOND)
    assert waiting.skipped > 0
    clock = waiting.reached(3600 * SECOND)
    assert (clock.time, clock.skipped) == (3600 * SECOND, 0)
