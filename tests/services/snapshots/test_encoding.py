"""The law of the encoding, over every state of simulated clusters."""

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
def test_decoded_state_equals_encoded_one_and_continues_like_it(name: str | int) -> None:
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
            assert [instruction.key for instruction in role.instructions(read)] == [
                instruction.key for instruction in role.instructions(state)
            ]
        data = encode(replica.leadership)
        assert decode(LEADERSHIP, data) == replica.leadership


def test_encoding_is_independent_of_insertion_order_of_map() -> None:
    leaders = [(f"job_master/{number}", Leader(number, "a", "s", 7)) for number in range(100)]
    assert encode(LeadershipState(Map(leaders))) == encode(LeadershipState(Map(reversed(leaders))))


def test_default_values_take_no_space() -> None:
    assert encode(DispatcherState()) == encode(DispatcherState(jobs=Map([("a", 1)]).delete("a"))) == b"\x80"  # type: ignore[arg-type]


def test_unsupported_type_is_rejected() -> None:
    with pytest.raises(TypeError, match="a state contains object, which cannot be encoded"):
        encode(DispatcherState(jobs=Map({"j": object()})))  # type: ignore[dict-item]


def test_bytes_that_are_no_state_are_rejected() -> None:
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
def test_any_change_of_type_or_default_changes_fingerprint(
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


def test_fingerprint_of_this_release_is_stable() -> None:
    schema_fingerprint.cache_clear()
    first = schema_fingerprint()
    schema_fingerprint.cache_clear()
    assert schema_fingerprint() == first
