"""Operator state: the writes of any commits restore it, and each element goes to one new subtask, or to all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.functions import ListStateDescriptor, StateTtlConfig
from tailrace.pipelines.runtime.common.failures import StateTypeError
from tailrace.pipelines.runtime.state_backend.operator_state import OperatorState
from tailrace.pipelines.runtime.state_backend.stateful import Origin

NUMBERS = ListStateDescriptor[int]("numbers", int)
TEXTS = ListStateDescriptor[str]("texts")
"""Pickled."""
STEPS = st.lists(
    st.none()
    | st.tuples(
        st.sampled_from(["add", "add_all", "update", "clear"]), st.booleans(), st.lists(st.integers(0, 9))
    ),
    max_size=20,
)


class Subtask:
    """The state of a subtask, with a list of each kind."""

    def __init__(self, index: int = 0, parallelism: int = 1, requests: bool = True) -> None:
        self.state = OperatorState(index, parallelism, "Count")
        if requests:
            self.request()

    def request(self) -> None:
        self.numbers = self.state.get_list_state(NUMBERS)
        self.texts = self.state.get_union_list_state(TEXTS)

    def lists(self) -> tuple[list[int], list[str]]:
        return list(self.numbers), list(self.texts)

    def do(self, what: str, is_union: bool, numbers: list[int]) -> None:
        values: list[Any] = [str(number) for number in numbers] if is_union else numbers
        state: Any = self.texts if is_union else self.numbers
        match what:
            case "add":
                for value in values:
                    state.add(value)
            case "clear":
                state.clear()
            case _:
                getattr(state, what)(values)

    def live(self, steps: list[Any]) -> list[bytes]:
        """Does the steps; returns the writes of the commits."""
        changelog = list[bytes]()
        for step in [*steps, None]:
            if step is None:
                changelog += self.state.take_changes()
            else:
                self.do(*step)
        return changelog


def restored(
    messages: list[tuple[Origin | None, list[bytes]]],
    index: int = 0,
    parallelism: int = 1,
    *,
    requests: bool = True,
) -> Subtask:
    subtask = Subtask(index, parallelism, requests=False)
    for origin, some in messages:
        subtask.state.restore_from(origin)
        for message in some:
            subtask.state.restore(message)
    subtask.state.restore_from(None)
    if requests:
        subtask.request()
    return subtask


@given(STEPS, st.booleans())
def test_changes_of_any_commits_and_full_files_restore_lists(steps: list[Any], requests: bool) -> None:
    lived = Subtask()
    changelog = lived.live(steps)
    assert list(lived.state.take_changes()) == [], "nothing changed since"
    by_changes = restored([(None, changelog)], requests=requests)
    full = restored([(None, list(by_changes.state.full()))])
    assert full.lists() == lived.lists()
    if requests:
        assert by_changes.lists() == lived.lists()
        assert list(by_changes.state.take_changes()) == [], "what was restored is not written again"


@given(st.lists(STEPS, min_size=1, max_size=4), st.integers(1, 5), STEPS, st.booleans(), st.integers(1, 5))
def test_each_element_goes_to_one_subtask_and_each_element_of_union_to_all(
    programs: list[list[Any]], after: int, more: list[Any], is_requested: bool, last: int
) -> None:
    old = [Subtask(index, len(programs)) for index in range(len(programs))]
    written = [
        (Origin(index, len(old), 128), subtask.live(steps))
        for index, (subtask, steps) in enumerate(zip(old, programs, strict=True))
    ]
    new = [restored(written, index, after) for index in range(after)]
    numbers = sorted(number for subtask in old for number in subtask.numbers)
    texts = [text for subtask in old for text in subtask.texts]
    assert sorted(number for subtask in new for number in subtask.numbers) == numbers
    assert max(len(list(s.numbers)) for s in new) - min(len(list(s.numbers)) for s in new) <= 1
    assert all(list(subtask.texts) == texts for subtask in new)
    # A later attempt applies its predecessor's changes to what it takes over again.
    changes = new[0].live(more)
    assert restored([*written, (None, changes)], 0, after).lists() == new[0].lists()
    # Also if no function requested it meanwhile, in full files and at another parallelism.
    between = [restored(written, index, after, requests=is_requested) for index in range(after)]
    full = [(Origin(index, after, 128), list(subtask.state.full())) for index, subtask in enumerate(between)]
    again = [restored(full, index, last) for index in range(last)]
    assert sorted(number for subtask in again for number in subtask.numbers) == numbers
    assert all(list(subtask.texts) == texts * after for subtask in again)


def test_list_that_is_set_to_equal_elements_is_not_written_again() -> None:
    lived = Subtask()
    element = {"a": 1}
    state = lived.state.get_list_state(ListStateDescriptor[dict[str, int]]("held"))
    state.update([element])
    list(lived.state.take_changes())
    state.update([element])
    assert list(lived.state.take_changes()) == []
    element["a"] = 2
    state.update([element])
    assert len(list(lived.state.take_changes())) == 2, "an element that was changed in place"


def test_new_subtask_is_not_restored_and_empty_lists_are() -> None:
    lived = Subtask()
    assert not lived.state.is_restored
    assert restored([(None, lived.live([]))]).state.is_restored


@dataclass
class Wider:
    number: float = 0.0
    added: str = "x"


def test_elements_are_read_as_another_type_or_rejected() -> None:
    @dataclass
    class Narrow:
        number: int

    Narrow.__name__ = Narrow.__qualname__ = "Wider"
    Narrow.__module__ = Wider.__module__
    before = OperatorState(0, 1, "Count")
    before.get_list_state(ListStateDescriptor[Any]("l", Narrow)).add(Narrow(1))
    messages = list(before.take_changes())

    def again() -> OperatorState:
        state = OperatorState(0, 1, "Count")
        for message in messages:
            state.restore(message)
        return state

    state = again()
    wider = state.get_list_state(ListStateDescriptor[Wider]("l", Wider))
    assert list(wider) == [Wider(1.0, "x")]
    wider.add(Wider(2.5))
    messages += state.take_changes()
    assert list(again().get_list_state(ListStateDescriptor[Wider]("l", Wider))) == [Wider(1.0), Wider(2.5)]
    with pytest.raises(StateTypeError, match=r"state 'l' of operator 'Count' was written as a split list of"):
        again().get_list_state(ListStateDescriptor[str]("l", str))
    with pytest.raises(StateTypeError, match="it is another kind of state"):
        again().get_union_list_state(ListStateDescriptor[Wider]("l", Wider))


def test_state_has_one_form_and_no_time_to_live() -> None:
    state = Subtask().state
    with pytest.raises(ValueError, match="is a split list of int but is requested as a union list of int"):
        state.get_union_list_state(NUMBERS)
    expiring = ListStateDescriptor("e", int, ttl_config=StateTtlConfig(timedelta(days=1)))
    with pytest.raises(ValueError, match="only keyed state can expire"):
        state.get_list_state(expiring)


@pytest.mark.parametrize("message", [b"", b"?", b"\x01\x01\x01\0\0\0\0\0ax", b"\x01\x04\x01\0\0\0\0\0a"])
def test_invalid_message_is_rejected(message: bytes) -> None:
    with pytest.raises(ValueError, match="the changelog holds"):
        Subtask(requests=False).state.restore(message)
