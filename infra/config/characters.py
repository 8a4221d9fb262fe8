"""The characters that a name from outside may have, the same under every Python.

`str.isprintable` follows the interpreter's Unicode tables, which differ between releases, while decisions from a log
must not. This module lists the forbidden characters: terminal controls, invisible characters, and non-characters. All
other characters are allowed, also those that Unicode has not assigned yet.
"""

from __future__ import annotations

import re

_IMPOSSIBLE = re.compile(
    "["
    "\x00-\x1f\x7f-\xa0\xad"  # controls, a space that does not break, a hyphen that may be shown
    "\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"  # marks of scripts that are not shown by themselves
    "\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff9-\ufffb"  # spaces, line ends, marks of direction
    "\ud800-\uf8ff\ufffe\uffff"  # halves of pairs, private use, no characters
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff"  # tags, private use
    "]"
)


def is_plain(text: str) -> bool:
    """Returns whether every character of the text is allowed in a name."""
    return _IMPOSSIBLE.search(text) is None
