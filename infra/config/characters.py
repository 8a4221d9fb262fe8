"""Which characters a name from outside may have, the same under every Python.

`str.isprintable` follows the Unicode tables of the interpreter, which differ from release to release, and what follows
from a log must not. What can steer a terminal, is invisible, or is no character is written down here. All else may be
in a name, characters that no table knows yet among them.
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
    """Whether every character of the text may be in a name."""
    return _IMPOSSIBLE.search(text) is None
