"""What others wrote, made safe to show to people: no character of it steers a terminal, no number is too large, and no
secret is shown."""

from __future__ import annotations

from datetime import datetime

from .redaction import redacted


def escape_control_characters(text: str) -> str:
    """The text with escapes (\\x1b, \\n) for all that would not print: controls, line ends, marks of direction,
    and without secrets."""
    text = redacted(text)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def local_time(microseconds: int, pattern: str) -> str:
    """Microseconds since the epoch as local time; as the number that it is where no calendar reaches so far."""
    try:
        return datetime.fromtimestamp(microseconds / 1e6).strftime(pattern)
    except (ValueError, OverflowError, OSError):
        return str(microseconds)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
