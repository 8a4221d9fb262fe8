"""The law of encoding, over every state that simulated clusters come to."""

from __future__ import annotations

import enum

import msgspec
import pytest
from immutables import Map

from tailrace.services.core.leadership import Leader, LeadershipState
from tailrace.services.core.role import kind_of
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.snapshots.encoding import LEADERSHIP, decode, encode
from tailrace.services.snapshots.fingerprint import fingerprint_types, schema_fingerprint

from ..simulated_cluster.cluster import SECOND
from .simulated_logs import HISTORIES, create_quiet_replica, history


@pytest.mark.parametrize("name", HISTORIES)
def test_what_is_written_is_read_as_the_same_and_goes_on_as_the_same(name: str | int) -> None:
    replica = create_quiet_replica()
    for record in history(name):
        for address in replica.apply(record):
            state, role = replica.states[address], replica.role(address)
            data = encode(state)
            read = decode(kind_of(address), data)
            assert read == state
            assert encode(read) == data
            for now in (record.header.time, record.header.time + 1_000 * SECOND):
                assert role.decide(read, now) == role.decide(state, now)
            assert role.deadline(read) == role.deadline(state)
            assert role.is_quiescent(read) == role.is_quiescent(state)
            assert [each.key for each in role.instructions(read)] == [
                each.key for each in role.instructions(state)
            ]
        data = encode(replica.leadership)
        assert decode(LEADERSHIP, data) == replica.leadership


def test_the_order_in_which_a_map_was_filled_does_not_count() -> None:
    leaders = [(f"job_master/{number}", Leader(number, "a", "s", 7)) for number in range(100)]
    assert encode(LeadershipState(Map(leaders))) == encode(LeadershipState(Map(reversed(leaders))))


def test_what_is_as_at_first_takes_no_space_however_it_was_made() -> None:
    assert encode(DispatcherState()) == encode(DispatcherState(jobs=Map([("a", 1)]).delete("a"))) == b"\x80"  # type: ignore[arg-type]


def test_what_is_no_data_is_refused() -> None:
    with pytest.raises(TypeError, match="a state holds object, which cannot be encoded"):
        encode(DispatcherState(jobs=Map({"j": object()})))  # type: ignore[dict-item]


def test_bytes_that_hold_no_state_are_refused() -> None:
    for data in (b"", b"\x01", encode(LeadershipState(Map({"x": Leader(1, "a", "s", 0)})))[:-1]):
        with pytest.raises(msgspec.MsgspecError):
            decode(LEADERSHIP, data)


class Colour(enum.Enum):
    RED = "red"


class Before(msgspec.Struct, frozen=True):
    numbers: Map[str, int] = Map()
    colour: Colour = Colour.RED


class Inner(msgspec.Struct, frozen=True):
    number: int


@pytest.mark.parametrize(
    "fields",
    [
        [("numbers", Map[str, int], Map()), ("colour", Colour, Colour.RED), ("more", int, 0)],
        [("numbers", Map[str, float], Map()), ("colour", Colour, Colour.RED)],
        [("numbers", Map[str, Inner], Map()), ("colour", Colour, Colour.RED)],
        [("numbers", Map[str, int], Map({"a": 1})), ("colour", Colour, Colour.RED)],
        [("numbers", Map[str, int], Map()), ("hue", Colour, Colour.RED)],
    ],
)
def test_any_change_of_a_type_or_a_default_changes_the_fingerprint(
    fields: list[tuple[str, type, object]],
) -> None:
    after = msgspec.defstruct("Before", fields, frozen=True, module=__name__)
    assert fingerprint_types({"x": Before}) != fingerprint_types({"x": after})
    same = msgspec.defstruct(
        "Before",
        [("numbers", Map[str, int], Map()), ("colour", Colour, Colour.RED)],
        frozen=True,
        module=__name__,
    )
    assert fingerprint_types({"x": Before}) == fingerprint_types({"x": same})


def test_the_fingerprint_of_this_release_is_always_the_same() -> None:
    schema_fingerprint.cache_clear()
    first = schema_fingerprint()
    schema_fingerprint.cache_clear()
    assert schema_fingerprint() == first
