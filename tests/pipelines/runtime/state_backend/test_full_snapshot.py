"""A full snapshot equals the sum of all changes, and can be divided by key groups."""

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
    """Returns the range, cut at these groups."""
    inner = sorted({bound for bound in bounds if groups.start < bound < groups.stop})
    return [range(*pair) for pair in pairwise([groups.start, *inner, groups.stop])]


def group(key: str) -> int:
    return key_group_of(key, GROUPS)


def live(lived: KeyedStateBackend, steps: list[Step | None]) -> list[bytes]:
    """Runs the program; returns the writes of its commits."""
    changelog = list[bytes]()
    for step in steps:
        if step is None:
            changelog += lived.take_changes()
        else:
            step(lived)
    return changelog + lived.take_changes()


@pytest.mark.parametrize("deeds", [*DEEDS.values(), ALL], ids=[*DEEDS, "all"])
@given(data=st.data())
def test_full_snapshot_equals_all_changes(deeds: list[Any], data: st.DataObject) -> None:
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
def test_section_has_its_key_groups_in_order(data: st.DataObject) -> None:
    lived = backend(GROUPS)
    live(lived, data.draw(programs(ALL)))
    cut = sections(data.draw(st.lists(st.integers(0, GROUPS))), range(GROUPS))
    written = list(lived.full(cut))
    assert [item for item, _ in written] == sorted(
        (element for element, _ in written), key=lambda value: -1 if value is None else value.start
    )
    for section in cut:
        alone = backend(GROUPS)
        for written_section, message in written:
            if written_section == section:
                alone.restore(message)
        state = alone.snapshot()
        held = [*state["value"], *state["list"], *state["map"], *(key for _, key in state["timers"])]
        assert all(group(key) in section for key in held)


@given(data=st.data(), before=st.integers(1, 4), after=st.integers(1, 4))
def test_state_moves_by_key_groups(data: st.DataObject, before: int, after: int) -> None:
    """Each old subtask runs on its own and writes a snapshot at some commit; the new ones together have the same
    state, once."""
    steps = data.draw(deeds_of(ALL))
    old, files = list[KeyedStateBackend](), list[list[bytes]]()
    for subtask in range(before):
        own = key_groups_of_subtask(subtask, GROUPS, before)
        some = [step if step is None else step[1] for step in steps if step is None or group(step[0]) in own]
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
        (former,) = (backend for backend in old if group(key) in backend.key_groups)
        (owner,) = (backend for backend in new if group(key) in backend.key_groups)
        assert owner.watermark_for(key) == former.watermark
    for keyed_state_backend in new:
        owners = [one for one in old if set(one.key_groups) & set(keyed_state_backend.key_groups)]
        assert keyed_state_backend.watermark == min(one.watermark for one in owners)
        assert keyed_state_backend.clock == min(one.clock for one in owners)
    for keyed_state_backend in new:
        again = backend(GROUPS)
        for message in [
            *(data for _, data in keyed_state_backend.full([range(GROUPS)])),
            *keyed_state_backend.take_changes(),
        ]:
            again.restore(message)
        assert again.snapshot() == keyed_state_backend.snapshot()


@given(
    data=st.data(),
    parallelisms=st.lists(st.integers(1, 4), min_size=3, max_size=4),
    asked=st.lists(st.sets(st.sampled_from(sorted(TABLES))), min_size=2, max_size=2),
)
def test_state_moves_repeatedly_also_if_undeclared(
    data: st.DataObject, parallelisms: list[int], asked: list[set[str]]
) -> None:
    """Programs in between declare some tables only; each subtask writes a snapshot, once or after a restart."""
    deeds = data.draw(st.sampled_from([DEEDS["windows"], DEEDS["window-lists"], ALL]))
    steps, alike = data.draw(deeds_of(deeds, least=15)), data.draw(deeds_of(BROADCAST))
    whole_at = data.draw(st.integers(0, len(steps)))
    restarts = data.draw(st.booleans())
    first, *others = parallelisms
    old, files = list[KeyedStateBackend](), list[list[bytes]]()
    for own in (key_groups_of_subtask(subtask, GROUPS, first) for subtask in range(first)):
        some = [step if step is None else step[1] for step in steps if step is None or group(step[0]) in own]
        some += [pair if pair is None else pair[1] for pair in alike]
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
            new = [
                restart(keyed_state_backend, backend(GROUPS, keyed_state_backend.key_groups, tables))
                for keyed_state_backend in new
            ]
        files = [
            [*(data for _, data in backend.full([backend.key_groups])), *backend.take_changes()]
            for backend in new
        ]
    assert together(new) == together(old)
    for item in new:
        assert all(group(key) in item.key_groups for key in keys_of(item))
        assert in_order(item.snapshot()["~broadcast:broadcast"]) == in_order(
            old[0].snapshot()["~broadcast:broadcast"]
        )


@given(data=st.data(), before=st.integers(1, 4), after=st.integers(1, 4))
def test_state_declared_late_equals_state_declared_early(
    data: st.DataObject, before: int, after: int
) -> None:
    """A program that declares nothing runs at another parallelism; then it is changed at the same one, and declares
    it."""
    steps = data.draw(deeds_of(ALL))
    files = list[list[bytes]]()
    for own in (key_groups_of_subtask(subtask, GROUPS, before) for subtask in range(before)):
        some = [step if step is None else step[1] for step in steps if step is None or group(step[0]) in own]
        files.append(live(backend(GROUPS, own), some))
    for own in (key_groups_of_subtask(subtask, GROUPS, after) for subtask in range(after)):
        at_once, silent = (take(backend(GROUPS, own, tables), files) for tables in (None, ()))
        late = restart(silent, backend(GROUPS, own, ()))
        for ask in TABLES.values():
            ask(late)
            ask(silent)
        assert late.snapshot() == silent.snapshot() == at_once.snapshot()


def take(taken: KeyedStateBackend, files: list[list[bytes]]) -> KeyedStateBackend:
    """Restores what the subtasks of another parallelism wrote."""
    for index, messages in enumerate(files):
        taken.restore_from(Origin(index, len(files), GROUPS))
        for message in messages:
            taken.restore(message)
    taken.restore_from(None)
    return taken


def restart(lived: KeyedStateBackend, again: KeyedStateBackend) -> KeyedStateBackend:
    """Restores the snapshot of the same subtask."""
    for message in [*(data for _, data in lived.full([lived.key_groups])), *lived.take_changes()]:
        again.restore(message)
    return again


def keys_of(lived: KeyedStateBackend) -> set[str]:
    """Returns all keys with state."""
    state = lived.snapshot()
    held = {*state["value"], *state["list"], *state["map"], *(key for _, key in state["timers"])}
    return held.union(*state["windows"].values(), *state["window-lists"].values())


def together(backends: list[KeyedStateBackend]) -> dict[str, Any]:
    """Merges the state of all subtasks; each key is in one of them."""
    union: dict[str, Any] = {}
    for state in (keyed_backend.snapshot() for keyed_backend in backends):
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


def test_undeclared_state_is_written_with_the_rest() -> None:
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


def test_origin_without_time_sets_no_time() -> None:
    keyed_state_backend = backend(GROUPS)
    keyed_state_backend.watermark = 5
    taken = backend(GROUPS)
    taken.restore_from(Origin(0, 2, GROUPS))
    for message in keyed_state_backend.take_changes():
        taken.restore(message)
    taken.restore_from(Origin(1, 2, GROUPS))
    taken.restore_from(None)
    assert taken.watermark == NO_WATERMARK


def test_key_groups_ahead_stay_ahead_until_watermark_reaches_them() -> None:
    keys = [str(number) for number in range(20)]
    keyed_state_backend = backend(GROUPS)
    for index, watermark in ((0, 5), (1, 9)):
        report = backend(GROUPS)
        report.watermark = watermark
        keyed_state_backend.restore_from(Origin(index, 2, GROUPS))
        for message in report.take_changes():
            keyed_state_backend.restore(message)
    keyed_state_backend.restore_from(None)
    reached = {key: 5 if group(key) < GROUPS // 2 else 9 for key in keys}
    assert {5, 9} == set(reached.values())
    again = backend(GROUPS)
    for message in keyed_state_backend.take_changes():
        again.restore(message)
    for item in (keyed_state_backend, again):
        assert (item.watermark, item.greatest_watermark) == (5, 9)
        assert {key: item.watermark_for(key) for key in keys} == reached
        item.watermark = 7
        assert {item.watermark_for(key) for key in keys} == {7, 9}
        item.watermark = 9
        item.take_changes()
        assert not item.has_keys_ahead


def test_key_groups_at_end_of_time_start_again() -> None:
    keyed_state_backend = backend(GROUPS)
    ended = backend(GROUPS)
    ended.watermark = MAX_WATERMARK
    keyed_state_backend.restore_from(Origin(1, 2, GROUPS))
    for message in ended.take_changes():
        keyed_state_backend.restore(message)
    keyed_state_backend.restore_from(None)
    assert keyed_state_backend.has_keys_ahead
    keyed_state_backend.begin_time_anew()
    assert not keyed_state_backend.has_keys_ahead
