"""How deep a JSON text from outside is nested: no deeper than MOST, whatever stack its reader has left.

Readers recurse, and where the stack ends depends on who calls them: a verdict must not.
"""

from __future__ import annotations

import re
from typing import Any

MOST = 64
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def is_too_deep(text: str) -> bool:
    """Whether brackets, outside of strings, are nested deeper than MOST; also of a text that is no JSON."""
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
    """As `is_too_deep`, of what a JSON text says."""
    level = [value]
    for _ in range(MOST + 1):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True
