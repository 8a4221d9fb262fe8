"""Splits SQL text into statements, with quotes and comments."""

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
    """Returns the statements that end with a semicolon, without it and without comments, and the rest of the text."""
    found: list[str] = []
    parts: list[str] = []
    for match in _PARTS.finditer(text):
        if match.lastgroup == "end":
            found.append("".join(parts).strip())
            parts = []
        else:
            part = match.group()
            parts.append(" " if match.lastgroup == "comment" and not _is_needed(part) else part)
    return [statement for statement in found if statement], "".join(parts).strip()


def _is_needed(comment: str) -> bool:
    """Returns whether a comment is a hint, or has no end yet; others only separate words."""
    return comment.startswith("/*") and (comment.startswith("/*+") or not comment.endswith("*/"))


def mentioned_tables(statement: str, names: Iterable[str]) -> list[str]:
    """Returns the names that are words of the statement, case-insensitive."""
    words = {word.lower() for word in _WORD.findall(statement)}
    return [name for name in names if name.lower() in words]
