"""Limits how deep a JSON text from outside is nested, independent of the reader's remaining stack.

Readers recurse, and the depth at which they fail depends on their caller; a decision must not.
"""

from __future__ import annotations

import re
from typing import Any

MOST = 64
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def is_too_deep(text: str) -> bool:
    """Returns whether brackets outside of strings are nested deeper than the limit; also for invalid JSON."""
    depth = 0
    for token in _TOKENS.finditer(text):
        first = text[token.start()]
        if first in "[{":
            depth += 1
            if depth > MOST:
                return True
        elif first != '"':
            depth -= 1
    return False


def is_value_too_deep(value: Any) -> bool:
    """Like `is_too_deep`, for a decoded JSON value."""
    level = [value]
    for _ in range(MOST + 1):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True
