"""Reads the table of a state machine from the head of its module."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from types import ModuleType
from typing import TypeVar

S = TypeVar("S", bound=StrEnum)


def read_table(
    module: ModuleType, states: type[S], columns: Sequence[object]
) -> dict[S, tuple[S | None, ...]]:
    """Returns state -> the next state of each column; None where the table has a dash."""
    names, rows = states.__members__, {}
    for words in map(str.split, (module.__doc__ or "").splitlines()):
        cells = words[1 : len(columns) + 1]
        if words and words[0] in names and all(cell == "-" or cell in names for cell in cells):
            rows[names[words[0]]] = tuple(None if cell == "-" else names[cell] for cell in cells)
    return rows
