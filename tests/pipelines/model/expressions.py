"""Expressions in SQL of random programs, and what they mean for a row in plain Python; None for NULL."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any

CONDITIONS: Mapping[str, Callable[[Any], bool | None]] = {
    "number > 0": lambda row: row.number > 0,
    "key = 'a' OR at < 10": lambda row: row.key == "a" or row.at < 10,
    "number % 3 <> at % 2": lambda row: math.fmod(row.number, 3) != row.at % 2,
    "number / at > 0.25": lambda row: None if row.at == 0 else row.number / row.at > 0.25,
    "NOT (number / at > 0.25)": lambda row: None if row.at == 0 else row.number / row.at <= 0.25,
    "startswith(key, 'b') IS NOT NULL AND length(key) < 3": lambda row: len(row.key) < 3,
    "NULL OR number > 2": lambda row: True if row.number > 2 else None,
    "tag = 'another'": lambda row: None if row.tag is None else row.tag == "another",
    "sum > 7 AND at IS NOT NULL": lambda row: row.sum > 7,
}
COLUMNS: Mapping[str, Callable[[Any], Any]] = {
    "number + at": lambda row: row.number + row.at,
    "at % 7": lambda row: int(math.fmod(row.at, 7)),
    "CASE WHEN key = 'b' THEN number ELSE number - 2 END": lambda row: row.number - 2 * (row.key != "b"),
}
WHERE = [text for text in CONDITIONS if "sum" not in text]
"""Those on columns that every row has."""


def holds(condition: str, row: Any) -> bool:
    return CONDITIONS[condition](row) is True


def selected(columns: Sequence[tuple[str, str]], row: Any) -> Any:
    """Returns the record of a select. `columns`: names and expressions."""
    made = namedtuple("Row", [name for name, _ in columns])  # type: ignore[misc]
    return made(*(_value(text.strip("`"), row) for _, text in columns))


def _value(text: str, row: Any) -> Any:
    return COLUMNS[text](row) if text in COLUMNS else getattr(row, text)
