"""The elements of a sink's bucket: names of fields, and patterns of strftime for a record's timestamp."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

UNITS: Final = (
    ("second", "S"),
    ("minute", "M"),
    ("hour", "HI"),
    ("day", "djaA"),
    ("month", "mbB"),
    ("year", "Yy"),
)
"""Units of time, the finest first, with their directives."""


def is_pattern(element: str) -> bool:
    """Whether the element is a pattern of strftime."""
    return "%" in element


def unit_of(pattern: str) -> str | None:
    """Returns the finest unit of time of a pattern."""
    directives = set(re.findall(r"%(.)", pattern))
    return next((unit for unit, letters in UNITS if directives & set(letters)), None)


def finest_unit(elements: Sequence[str]) -> str | None:
    """Returns the finest unit of time of all patterns; None if there are only fields."""
    units = {unit_of(element) for element in elements if is_pattern(element)}
    return next((unit for unit, _ in UNITS if unit in units), None)


def find_bucket_errors(elements: Sequence[str]) -> list[str]:
    """Returns what is wrong with the elements."""
    errors = []
    for element in elements:
        if element.startswith((".", "_")) or "" in element.split("/"):
            errors.append(
                f"the bucket {element!r} would be hidden, or no relative path: readers skip . and _"
            )
        elif is_pattern(element) and unit_of(element) is None:
            errors.append(f"the pattern {element!r} has no date or time, such as %Y-%m-%d/%H")
        elif not is_pattern(element) and "/" in element:
            errors.append(f"the bucket {element!r} is no field")
    if len(set(elements)) < len(elements):
        errors.append("the bucket names a field twice")
    return errors
