"""Makes texts and times from outside safe to display: no terminal control characters, no out-of-range numbers, no
secrets."""

from __future__ import annotations

from datetime import datetime

from .redaction import redacted


def escape_control_characters(text: str) -> str:
    """Returns the text with escapes (\\x1b, \\n) for all non-printing characters (controls, line ends, direction
    marks), and without secrets."""
    text = redacted(text)
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def local_time(microseconds: int, pattern: str) -> str:
    """Formats microseconds since the epoch as local time; returns the number itself if it is out of the calendar's
    range."""
    try:
        return datetime.fromtimestamp(microseconds / 1e6).strftime(pattern)
    except (ValueError, OverflowError, OSError):
        return str(microseconds)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
