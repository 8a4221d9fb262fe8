"""An address decides after a change of its state and when its deadline has passed, and at no other time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.core.decision import DecisionQueue, Turn, decide_role
from tailrace.services.core.role import Instruction, OutgoingEvent

ADDRESS = st.sampled_from("abcd")
OFFSET = st.integers(0, 6)
DEADLINE = st.none() | st.integers(0, 10)


class Timer(msgspec.Struct, frozen=True):
    """A state with a deadline."""

    deadline: int | None = None


class TimerRole:
    """Requires nothing; has the deadline of its state."""

    kind = "timer"

    def decide(self, state: Timer, now: int) -> list[OutgoingEvent]:
        return []

    def deadline(self, state: Timer) -> int | None:
        return state.deadline

    def instructions(self, state: Timer) -> Sequence[Instruction]:
        return ()


def decided(turns: list[Turn]) -> list[str]:
    return [turn.role_address for turn in turns]


@given(
    st.lists(st.tuples(ADDRESS, OFFSET, DEADLINE), max_size=20),
    st.integers(0, 10),
    st.none() | OFFSET,
)
def test_addresses_with_changed_state_or_passed_deadline_decide(
    changes: list[tuple[str, int, int | None]], now: int, limit: int | None
) -> None:
    queue, states = DecisionQueue(), dict[str, Timer]()

    def find(address: str) -> Any:
        return TimerRole(), states[address]

    for address, _, deadline in changes:
        states[address] = Timer(deadline)
        queue.mark(address)
    assert decided(queue.decide(0, find)) == list(dict.fromkeys(address for address, _, _ in changes))
    future = {item: state.deadline for item, state in states.items() if state.deadline}
    assert queue.next_deadline() == min((number for number in future.values() if number), default=None)
    first = dict[str, int]()
    for address, offset, _ in changes:
        first.setdefault(address, offset)
        queue.mark(address, offset)
    expected = [element for element, since in first.items() if limit is None or since <= limit]
    due = sorted((time, value) for value, time in future.items() if time and time <= now)
    results = decided(queue.decide(now, find, limit))
    assert results == [*expected, *(address for _, address in due if address not in expected)]
    assert decided(queue.decide(now, find)) == [address for address in first if address not in expected]
    assert not queue.has_changes


def test_removed_address_or_address_led_by_others_does_not_decide() -> None:
    queue = DecisionQueue()
    for address in ("removed", "foreign", "own"):
        queue.mark(address)
    queue.remove("removed")
    turns = queue.decide(0, lambda item: None if item == "foreign" else (TimerRole(), Timer(5)))
    assert decided(turns) == ["own"]
    queue.remove("own")
    assert queue.next_deadline() is None
    assert decided(queue.decide(9, lambda _: (TimerRole(), Timer()))) == []


def test_role_that_raises_requires_no_event_and_issues_its_instructions() -> None:
    class Broken(TimerRole):
        def decide(self, state: Timer, now: int) -> list[OutgoingEvent]:
            raise ValueError("no decision")

        def instructions(self, state: Timer) -> Sequence[Instruction]:
            return (Instruction(),)

    decision = decide_role(Broken(), Timer(5), 0)  # type: ignore[arg-type]
    assert (list(decision.events), decision.deadline) == ([], None)
    assert list(decision.instructions) == [Instruction()]
    with pytest.raises(ValueError, match="no decision"):
        raise decision.error or AssertionError
