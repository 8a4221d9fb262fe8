"""SQL as people write it: several statements with semicolons between them, quotes and comments in them."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PARTS = re.compile(
    r"""
    (?P<comment> --[^\n]* | /\*.*?(?:\*/|\Z) )
  | (?P<quoted> '(?:\\.|[^'\\])*(?:'|\Z) | "(?:\\.|[^"\\])*(?:"|\Z) | `[^`]*(?:`|\Z) )
  | (?P<end> ; )
  | (?P<other> [^-/'"`;]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_WORD = re.compile(r"\w+")


def split_statements(text: str) -> tuple[list[str], str]:
    """The statements that end with a semicolon, without it and without comments; and what follows the last of them."""
    found: list[str] = []
    parts: list[str] = []
    for match in _PARTS.finditer(text):
        if match.lastgroup == "end":
            found.append("".join(parts).strip())
            parts = []
        else:
            part = match.group()
            parts.append(" " if match.lastgroup == "comment" and not _is_needed(part) else part)
    return [each for each in found if each], "".join(parts).strip()


def _is_needed(comment: str) -> bool:
    """A hint, or a comment whose end is still to come; others only separate words."""
    return comment.startswith("/*") and (comment.startswith("/*+") or not comment.endswith("*/"))


def mentioned_tables(statement: str, names: Iterable[str]) -> list[str]:
    """Which of the names are words of the statement, in upper or lower case."""
    words = {each.lower() for each in _WORD.findall(statement)}
    return [each for each in names if each.lower() in words]
