"""States as built-in types: what msgspec returns, sorted, however values are shared."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from immutables import Map

from tailrace.services.history.to_builtins import to_builtins

from .recorded_history import SEEDS, record_live_moments


def plainly(value: object) -> Any:
    """Converts without sharing."""
    return ordered(msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=of_map))


def of_map(value: object) -> Any:
    assert isinstance(value, Map)
    return {
        "/".join(map(str, key)) if isinstance(key, tuple) else str(key): item for key, item in value.items()
    }


def ordered(value: Any) -> Any:
    match value:
        case dict():
            keys = sorted(value, key=lambda key: (0, int(key), "") if key.isdecimal() else (1, 0, key))
            return {key: ordered(value[key]) for key in keys}
        case list() | tuple():
            return [ordered(item) for item in value]
        case _:
            return value


@pytest.mark.parametrize("seed", SEEDS)
def test_data_has_whole_state_in_order(seed: int) -> None:
    for known in record_live_moments(seed)[::10]:
        for state in (*known.states.values(), known.leadership):
            assert msgspec.json.encode(to_builtins(state)) == msgspec.json.encode(plainly(state))
