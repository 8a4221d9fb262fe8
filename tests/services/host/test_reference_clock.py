"""The laws of ReferenceClock, with a host whose wall clock shows anything."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.host.reference_clock import ReferenceClock

from ..simulated_cluster.clocks import LARGEST_ERROR, HostClock

SECOND = 1_000_000
HOUR = 3_600 * SECOND


class World:
    """The true time, and two times of one host."""

    def __init__(self) -> None:
        self.now = 1_000 * HOUR
        self.wall_is_ahead = 0
        self.clock = ReferenceClock(lambda: self.now + self.wall_is_ahead, lambda: self.now - 999 * HOUR)

    def ask(self, to_kafka: int = 0, back: int = 0, kafka_is_ahead: int = 0) -> None:
        """Kafka answers a request."""
        sent = self.now - 999 * HOUR
        self.now += to_kafka
        reference = self.now + kafka_is_ahead
        self.now += back
        self.clock.set_by(reference, sent, self.now - 999 * HOUR, 0)


@given(seed=st.integers(0, 2**32), steps=st.lists(st.integers(0, 1_000 * SECOND), max_size=20))
def test_clocks_of_hosts_agree_and_never_go_back_whatever_their_wall_clocks_show(
    seed: int, steps: list[int]
) -> None:
    draw = random.Random(seed)
    now = 1_000 * HOUR
    clocks = [HostClock(draw, lambda: now) for _ in range(3)]
    shown = [0, 0, 0]
    for step in steps:
        now += step
        if draw.random() < 0.3:
            draw.choice(clocks).set_wall()
        for number, clock in enumerate(clocks):
            time = clock()
            assert abs(time - now) <= LARGEST_ERROR
            assert time >= shown[number]
            shown[number] = time


def test_clock_is_wall_clock_before_kafka_answers() -> None:
    world = World()
    world.wall_is_ahead = HOUR
    assert world.clock() == world.now + HOUR
    world.ask()
    assert world.clock() == world.now


@given(st.integers(0, HOUR), st.integers(0, HOUR))
def test_slow_answer_leaves_clock_that_fast_one_has_set(to_kafka: int, back: int) -> None:
    world = World()
    world.ask()
    world.ask(to_kafka, back)
    assert world.clock() == world.now


def test_fast_answer_corrects_clock_that_slow_one_has_set() -> None:
    world = World()
    world.ask(to_kafka=10 * SECOND)
    assert abs(world.clock() - world.now) == 5 * SECOND
    world.ask(to_kafka=1, back=1)
    assert abs(world.clock() - world.now) <= 5 * SECOND
    world.now += 6 * SECOND
    assert abs(world.clock() - world.now) <= 2


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_clock_follows_kafka_that_is_set(by: int) -> None:
    world = World()
    world.ask()
    world.clock()
    world.ask(kafka_is_ahead=by)
    assert world.clock() == world.now + by
