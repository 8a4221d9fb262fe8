"""Truncates texts that roles and shells compose, so that they fit into an event.

A reason often quotes others: a task's name, an error of the user's code, the reason of an earlier event. Names are
bounded when a job is admitted. All other texts are truncated here, in one place for all events. Characters that can't
be encoded are replaced.
"""

from __future__ import annotations

import functools

import msgspec

from ...schemas.body import Body

LONGEST_REASON_CHARACTERS = 16_000
"""Characters of a reason."""
_FIELDS = frozenset({"reason", "failure"})


def truncate_reasons(body: Body) -> Body:
    """The body with texts that the log takes; the same object where nothing is to be changed."""
    for name in _reasons_of(type(body)):
        text = getattr(body, name)
        if type(text) is str and not (text.isascii() and len(text) <= LONGEST_REASON_CHARACTERS):
            cut = truncate_text(text)
            if cut is not text:
                body = msgspec.structs.replace(body, **{name: cut})
    return body


def truncate_text(text: str) -> str:
    """The text, or its beginning and its end; with a question mark for each character that has no encoding."""
    if len(text) > LONGEST_REASON_CHARACTERS:
        left_out = f" [... {len(text) - LONGEST_REASON_CHARACTERS:,} characters left out ...] "
        half = (LONGEST_REASON_CHARACTERS - len(left_out)) // 2
        text = f"{text[:half]}{left_out}{text[-half:]}"
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


@functools.cache
def _reasons_of(body: type[Body]) -> tuple[str, ...]:
    return tuple(each for each in body.__struct_fields__ if each in _FIELDS)
