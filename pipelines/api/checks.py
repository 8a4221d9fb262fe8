"""Checks of values that a program passes, whatever their type hints say."""

from __future__ import annotations

import math
from typing import TypeGuard


def is_text(value: object) -> bool:
    """One or more characters."""
    return isinstance(value, str) and value != ""


def is_whole(value: object, least: int, most: int = 2**53) -> bool:
    """An integer in that range."""
    return type(value) is int and least <= value <= most


def is_number(value: object) -> bool:
    """A finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_field(value: object) -> TypeGuard[str | int]:
    """The name or the position of a field."""
    return isinstance(value, (str, int)) and not isinstance(value, bool)
