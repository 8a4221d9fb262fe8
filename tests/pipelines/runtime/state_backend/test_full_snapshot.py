"""All state written at once is the same as all changes, and divides by key groups."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipelines.runtime.state_backend.programs import (
    ALL,
    BROADCAST,
    DEEDS,
    KEYS,
    TABLES,
    Step,
    backend,
    deeds_of,
    in_order,
    programs,
)

from tailrace.pipelines.graph.key_groups import key_group_of, key_groups_of_subtask
from tailrace.pipelines.runtime.records.buffers import MAX_WATERMARK, NO_WATERMARK
from tailrace.pipelines.runtime.state_backend.keyed_state_backend import KeyedStateBackend
from tailrace.pipelines.runtime.state_backend.stateful import Origin
from tailrace.pipelines.types import Types

GROUPS = 8


def sections(bounds: list[int], groups: range) -> list[range]:
    """The range, cut at these."""
    inner = sorted({each for each in bounds if groups.start < each < groups.stop})
    return [range(*pair) for pair in pairwise([groups.start, *inner, groups.stop])]


def group(key: str) -> int:
    return key_group_of(key, GROUPS)


def live(lived: KeyedStateBackend, steps: list[Step | None]) -> list[bytes]:
    """Does it all; what the commits wrote."""
    changelog = list[bytes]()
    for step in steps:
        if step is None:
            changelog += lived.take_changes()
        else:
            step(lived)
    return changelog + lived.take_changes()


@pytest.mark.parametrize("deeds", [*DEEDS.values(), ALL], ids=[*DEEDS, "all"])
@given(data=st.data())
def test_all_state_is_what_all_changes_give(deeds: list[Any], data: st.DataObject) -> None:
    lived = backend(GROUPS)
    changelog = live(lived, data.draw(programs(deeds)))
    cut = sections(data.draw(st.lists(st.integers(0, GROUPS))), range(GROUPS))
    restored, by_changes = backend(GROUPS), backend(GROUPS)
    for _, message in lived.full(cut):
        restored.restore(message)
    for message in changelog:
        by_changes.restore(message)
    assert restored.snapshot() == by_changes.snapshot() == lived.snapshot()
    assert restored.take_changes() == [], "what was restored is not written again"
    if len(cut) == 1:
        for name in ("windows", "window-lists"):
            for window, held in lived.snapshot()[name].items():
                assert in_order(held) == in_order(restored.snapshot()[name][window])


@given(data=st.data())
def test_a_section_holds_its_key_groups_and_they_come_in_order(data: st.DataObject) -> None:
    lived = backend(GROUPS)
    live(lived, data.draw(programs(ALL)))
    cut = sections(data.draw(st.lists(st.integers(0, GROUPS))), range(GROUPS))
    written = list(lived.full(cut))
    assert [each for each, _ in written] == sorted(
        (each for each, _ in written), key=lambda each: -1 if each is None else each.start
    )
    for section in cut:
        alone = backend(GROUPS)
        for each, message in written:
            if each == section:
                alone.restore(message)
        state = alone.snapshot()
        held = [*state["value"], *state["list"], *state["map"], *(key for _, key in state["timers"])]
        assert all(group(key) in section for key in held)


@given(data=st.data(), before=st.integers(1, 4), after=st.integers(1, 4))
def test_state_moves_by_key_groups(data: st.DataObject, before: int, after: int) -> None:
    """Each old subtask goes its own way and writes all of it at some commit; the new ones hold the same, once."""
    steps = data.draw(deeds_of(ALL))
    old, files = list[KeyedStateBackend](), list[list[bytes]]()
    for subtask in range(before):
        own = key_groups_of_subtask(subtask, GROUPS, before)
        some = [each if each is None else each[1] for each in steps if each is None or group(each[0]) in own]
        whole_at = data.draw(st.integers(0, len(some)))
        lived = backend(GROUPS, own)
        live(lived, some[:whole_at])
        files.append([message for _, message in lived.full([own])] + live(lived, some[whole_at:]))
        old.append(lived)
    new = list[KeyedStateBackend]()
    for subtask in range(after):
        own = key_groups_of_subtask(subtask, GROUPS, after)
        new.append(take(backend(GROUPS, own), files))
    assert together(new) == together(old)
    for key in KEYS:
        (former,) = (each for each in old if group(key) in each.key_groups)
        (owner,) = (each for each in new if group(key) in each.key_groups)
        assert owner.watermark_for(key) == former.watermark
    for each in new:
        owners = [one for one in old if set(one.key_groups) & set(each.key_groups)]
        assert each.watermark == min(one.watermark for one in owners)
        assert each.clock == min(one.clock for one in owners)
    for each in new:
        again = backend(GROUPS)
        for message in [*(data for _, data in each.full([range(GROUPS)])), *each.take_changes()]:
            again.restore(message)
        assert again.snapshot() == each.snapshot()


@given(
    data=st.data(),
    parallelisms=st.lists(st.integers(1, 4), min_size=3, max_size=4),
    asked=st.lists(st.sets(st.sampled_from(sorted(TABLES))), min_size=2, max_size=2),
)
def test_state_moves_again_and_again_also_where_nobody_asks_for_it(
    data: st.DataObject, parallelisms: list[int], asked: list[set[str]]
) -> None:
    """Programs in between ask for some tables only; each subtask writes all of its state, once or after a restart."""
    deeds = data.draw(st.sampled_from([DEEDS["windows"], DEEDS["window-lists"], ALL]))
    steps, alike = data.draw(deeds_of(deeds, least=15)), data.draw(deeds_of(BROADCAST))
    whole_at = data.draw(st.integers(0, len(steps)))
    restarts = data.draw(st.booleans())
    first, *others = parallelisms
    old, files = list[KeyedStateBackend](), list[list[bytes]]()
    for own in (key_groups_of_subtask(subtask, GROUPS, first) for subtask in range(first)):
        some = [each if each is None else each[1] for each in steps if each is None or group(each[0]) in own]
        some += [each if each is None else each[1] for each in alike]
        lived = backend(GROUPS, own)
        live(lived, some[:whole_at])
        files.append([message for _, message in lived.full([own])] + live(lived, some[whole_at:]))
        old.append(lived)
    new = list[KeyedStateBackend]()
    for stage, parallelism in enumerate(others):
        tables = None if stage == len(others) - 1 else asked[stage]
        owned = [key_groups_of_subtask(subtask, GROUPS, parallelism) for subtask in range(parallelism)]
        new = [take(backend(GROUPS, own, tables), files) for own in owned]
        if restarts:
            new = [restart(each, backend(GROUPS, each.key_groups, tables)) for each in new]
        files = [[*(data for _, data in each.full([each.key_groups])), *each.take_changes()] for each in new]
    assert together(new) == together(old)
    for each in new:
        assert all(group(key) in each.key_groups for key in keys_of(each))
        assert in_order(each.snapshot()["~broadcast:broadcast"]) == in_order(
            old[0].snapshot()["~broadcast:broadcast"]
        )


@given(data=st.data(), before=st.integers(1, 4), after=st.integers(1, 4))
def test_state_that_is_asked_for_late_is_what_it_would_have_been(
    data: st.DataObject, before: int, after: int
) -> None:
    """A program that asks for nothing runs at another parallelism; at the same one it is changed, and asks."""
    steps = data.draw(deeds_of(ALL))
    files = list[list[bytes]]()
    for own in (key_groups_of_subtask(subtask, GROUPS, before) for subtask in range(before)):
        some = [each if each is None else each[1] for each in steps if each is None or group(each[0]) in own]
        files.append(live(backend(GROUPS, own), some))
    for own in (key_groups_of_subtask(subtask, GROUPS, after) for subtask in range(after)):
        at_once, silent = (take(backend(GROUPS, own, tables), files) for tables in (None, ()))
        late = restart(silent, backend(GROUPS, own, ()))
        for ask in TABLES.values():
            ask(late)
            ask(silent)
        assert late.snapshot() == silent.snapshot() == at_once.snapshot()


def take(taken: KeyedStateBackend, files: list[list[bytes]]) -> KeyedStateBackend:
    """Restored from what the subtasks of another parallelism wrote."""
    for index, messages in enumerate(files):
        taken.restore_from(Origin(index, len(files), GROUPS))
        for message in messages:
            taken.restore(message)
    taken.restore_from(None)
    return taken


def restart(lived: KeyedStateBackend, again: KeyedStateBackend) -> KeyedStateBackend:
    """Restored from all that the same subtask writes."""
    for message in [*(data for _, data in lived.full([lived.key_groups])), *lived.take_changes()]:
        again.restore(message)
    return again


def keys_of(lived: KeyedStateBackend) -> set[str]:
    """All for which it holds something."""
    state = lived.snapshot()
    held = {*state["value"], *state["list"], *state["map"], *(key for _, key in state["timers"])}
    return held.union(*state["windows"].values(), *state["window-lists"].values())


def together(backends: list[KeyedStateBackend]) -> dict[str, Any]:
    """Of all subtasks; each key with one of them."""
    union: dict[str, Any] = {}
    for state in (each.snapshot() for each in backends):
        for name, held in state.items():
            if name in ("windows", "window-lists"):
                for window, keys in held.items():
                    into = union.setdefault((name, window), {})
                    assert not into.keys() & keys.keys()
                    into.update(keys)
            elif name == "timers":
                union.setdefault(name, set()).update(held)
            elif name == "~broadcast:broadcast":
                assert union.setdefault(name, held) == held
            elif name != "~times":
                into = union.setdefault(name, {})
                assert not into.keys() & held.keys()
                into.update(held)
    return union


def test_state_that_nobody_has_asked_for_is_written_with_the_rest() -> None:
    lived = KeyedStateBackend(Types.STRING(), GROUPS)
    lived.value_table("v", Types.LONG()).put("a", 7)
    large = lived.list_table("l", Types.STRING())
    large.extend("a", ["x" * 3_000_000])
    unasked = KeyedStateBackend(Types.STRING(), GROUPS)
    for message in lived.take_changes():
        unasked.restore(message)
    restored = KeyedStateBackend(Types.STRING(), GROUPS)
    for _, message in unasked.full([range(GROUPS)]):
        restored.restore(message)
    assert restored.value_table("v", Types.LONG()).snapshot() == {"a": 7}
    assert restored.list_table("l", Types.STRING()).snapshot() == large.snapshot()


def test_of_an_origin_that_told_no_time_none_is_taken() -> None:
    told = backend(GROUPS)
    told.watermark = 5
    taken = backend(GROUPS)
    taken.restore_from(Origin(0, 2, GROUPS))
    for message in told.take_changes():
        taken.restore(message)
    taken.restore_from(Origin(1, 2, GROUPS))
    taken.restore_from(None)
    assert taken.watermark == NO_WATERMARK


def test_key_groups_that_are_ahead_are_ahead_until_the_watermark_has_come_as_far() -> None:
    keys = [str(number) for number in range(20)]
    taken = backend(GROUPS)
    for index, watermark in ((0, 5), (1, 9)):
        told = backend(GROUPS)
        told.watermark = watermark
        taken.restore_from(Origin(index, 2, GROUPS))
        for message in told.take_changes():
            taken.restore(message)
    taken.restore_from(None)
    reached = {key: 5 if group(key) < GROUPS // 2 else 9 for key in keys}
    assert {5, 9} == set(reached.values())
    again = backend(GROUPS)
    for message in taken.take_changes():
        again.restore(message)
    for each in (taken, again):
        assert (each.watermark, each.greatest_watermark) == (5, 9)
        assert {key: each.watermark_for(key) for key in keys} == reached
        each.watermark = 7
        assert {each.watermark_for(key) for key in keys} == {7, 9}
        each.watermark = 9
        each.take_changes()
        assert not each.has_keys_ahead


def test_key_groups_at_the_end_of_time_begin_anew() -> None:
    taken = backend(GROUPS)
    ended = backend(GROUPS)
    ended.watermark = MAX_WATERMARK
    taken.restore_from(Origin(1, 2, GROUPS))
    for message in ended.take_changes():
        taken.restore(message)
    taken.restore_from(None)
    assert taken.has_keys_ahead
    taken.begin_time_anew()
    assert not taken.has_keys_ahead
