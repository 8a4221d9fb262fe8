"""Checks of values that a program passes, independent of their type hints."""

from __future__ import annotations

import math
from typing import TypeGuard


def is_text(value: object) -> bool:
    """Whether the value is a non-empty string."""
    return isinstance(value, str) and value != ""


def is_whole(value: object, least: int, most: int = 2**53) -> bool:
    """Whether the value is an integer in the range."""
    return type(value) is int and least <= value <= most


def is_number(value: object) -> bool:
    """Whether the value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_field(value: object) -> TypeGuard[str | int]:
    """Whether the value can be the name or the position of a field."""
    return isinstance(value, (str, int)) and not isinstance(value, bool)
