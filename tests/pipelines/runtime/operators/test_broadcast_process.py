"""Broadcast state: who changes it, who may only read it, and its restore by the next attempt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipelines.runtime.harness import Clock, Commit, Item, Records, Subject, Watermark, run

from tailrace.pipelines.api import (
    BroadcastContext,
    BroadcastOnTimerContext,
    BroadcastProcessFunction,
    KeyedBroadcastContext,
    KeyedBroadcastProcessFunction,
    KeyedReadOnlyBroadcastContext,
    ListStateDescriptor,
    MapStateDescriptor,
    ReadOnlyBroadcastContext,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
)
from tailrace.pipelines.runtime.common.failures import UserCodeError

RULES = MapStateDescriptor[str, int]("rules", str, int)
OTHERS = MapStateDescriptor[str, int]("others", str, int)
PARAMETERS = {"broadcast_states": {"rules": {"key_type": "str", "value_type": "int"}}}
KEYED = {**PARAMETERS, "key_type": "int"}
TYPES = (Types.LONG(), Types.TUPLE([str, int]))


class Rules(BroadcastProcessFunction[int, tuple[str, int], Any]):
    """A rule sets a limit; below zero removes it, or all of them if it has no name."""

    def process_element(self, value: int, context: ReadOnlyBroadcastContext) -> Iterable[Any]:
        rules = context.get_broadcast_state(RULES)
        return [(value, list(rules.items()), len(rules), "a" in rules)]

    def process_broadcast_element(self, value: tuple[str, int], context: BroadcastContext) -> Iterable[Any]:
        changed(context, value)
        return ["changed"] * (value[1] % 2)


class KeyedRules(KeyedBroadcastProcessFunction[int, int, tuple[str, int], Any]):
    """The same; the last number of each key is kept, and each rule with a name that begins with `k` changes it."""

    def open(self, context: RuntimeContext) -> None:
        self.last = context.get_state(LAST)

    def process_element(self, value: int, context: KeyedReadOnlyBroadcastContext[int]) -> Iterable[Any]:
        self.last.update(value)
        context.timer_service.register_event_time_timer(context.timestamp + 5)
        return [(value, list(context.get_broadcast_state(RULES).items()))]

    def process_broadcast_element(self, value: tuple[str, int], context: KeyedBroadcastContext[int]) -> None:
        changed(context, value)
        if value[0].startswith("k"):
            context.apply_to_keyed_state(LAST, lambda key, last: last.update(last.value() * 10 + key))

    def on_timer(self, timestamp: int, context: BroadcastOnTimerContext[int]) -> Iterable[Any]:
        rules = list(context.get_broadcast_state(RULES).items())
        return [(context.current_key, self.last.value(), rules)]


LAST = ValueStateDescriptor[int]("rules", int)
"""Of the same name as the broadcast state: these are two."""


def changed(context: BroadcastContext, value: tuple[str, int]) -> None:
    name, limit = value
    rules = context.get_broadcast_state(RULES)
    if limit >= 0:
        rules[name] = limit
    elif name:
        rules.pop(name, None)
    else:
        rules.clear()


def unkeyed(function: Any) -> Subject:
    return Subject("broadcast_process", (function,), PARAMETERS, TYPES)


def keyed(function: Any) -> Subject:
    return Subject("keyed_broadcast_process", (lambda value: value % 3, function), KEYED, TYPES)


NUMBERS = st.builds(
    lambda values: Records(list(enumerate(values))), st.lists(st.integers(0, 9), min_size=1, max_size=4)
)
NEW_RULES = st.builds(
    lambda values: Records(list(enumerate(values)), 1),
    st.lists(st.tuples(st.sampled_from(["", "a", "b", "k"]), st.integers(-2, 5)), min_size=1, max_size=4),
)
PROGRAMS = st.lists(
    st.one_of(NUMBERS, NEW_RULES, st.just(Commit()), st.builds(Watermark, st.integers(0, 20)))
)


@pytest.mark.parametrize("subject", [unkeyed(Rules()), keyed(KeyedRules())], ids=["unkeyed", "keyed"])
@given(PROGRAMS)
def test_next_attempt_has_same_broadcast_state(subject: Subject, program: list[Item]) -> None:
    assert run(subject, program, crash=True) == run(subject, program)


def test_record_reads_effects_of_earlier_broadcast_records() -> None:
    program = [
        Records([(1, ("a", 3)), (2, ("b", 4)), (3, ("a", 5))], 1),
        Records([(4, 7)]),
        Records([(5, ("a", -1))], 1),
        Records([(6, 8)]),
    ]
    assert run(unkeyed(Rules()), program).records == [
        (1, "changed"),
        (3, "changed"),
        (4, (7, [("a", 5), ("b", 4)], 2, True)),
        (5, "changed"),
        (6, (8, [("b", 4)], 1, False)),
    ]


def test_broadcast_record_changes_state_of_every_key() -> None:
    program = [Records([(0, 3), (0, 4)]), Records([(1, ("k", 2))], 1), Watermark(5)]
    results = [value for _, value in run(keyed(KeyedRules()), program).records]
    assert results == [(3, []), (4, []), (0, 30, [("k", 2)]), (1, 41, [("k", 2)])]


class Wrong(KeyedBroadcastProcessFunction[int, int, tuple[str, int], Any]):
    """Does something that is rejected."""

    def __init__(self, what: str) -> None:
        self.what = what

    def open(self, context: RuntimeContext) -> None:
        self.last = context.get_state(LAST)
        self.numbers = context.get_list_state(ListStateDescriptor("numbers", int))

    def process_element(self, value: int, context: Any) -> None:
        rules = context.get_broadcast_state(RULES)
        match self.what:
            case "set":
                rules["a"] = 1
            case "remove":
                del rules["a"]
            case "unknown":
                context.get_broadcast_state(OTHERS)
            case "type":
                context.get_broadcast_state(MapStateDescriptor("rules", str, str))

    def process_broadcast_element(self, value: tuple[str, int], context: Any) -> None:
        match self.what:
            case "value":
                self.last.value()
            case "list":
                self.numbers.add(1)
            case "timer":
                context.timer_service.register_event_time_timer(1)
            case "apply":
                context.apply_to_keyed_state("rules", print)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("set", "broadcast state can only be read here: change it in process_broadcast_element"),
        ("remove", "broadcast state can only be read here"),
        ("unknown", "there is no broadcast state 'others', only rules: give its descriptor to broadcast()"),
        ("type", "requested as a map of str to str"),
        ("value", "there is no current key in process_broadcast_element"),
        ("list", "there is no current key in process_broadcast_element"),
        ("timer", "which a broadcast record does not have: register them in process_element"),
        ("apply", "it needs the descriptor of a keyed state, not 'rules'"),
    ],
)
def test_access_that_makes_copies_differ_or_has_no_key_is_rejected_by_name(what: str, reason: str) -> None:
    program: Sequence[Item] = [Records([(0, 1)]), Records([(0, ("a", 1))], 1), Clock(1)]
    with pytest.raises(UserCodeError) as caught:
        run(keyed(Wrong(what)), program)
    assert reason in str(caught.value.__cause__)


class Counting(Rules):
    def open(self, context: RuntimeContext) -> None:
        context.get_state(LAST)


def test_operator_without_keys_has_no_keyed_state() -> None:
    with pytest.raises(UserCodeError) as caught:
        run(unkeyed(Counting()), [])
    assert "its stream has no keys: call key_by before" in str(caught.value.__cause__)
