"""Truncates the texts that roles and shells compose to what an event may hold.

A reason often quotes a task name, an error of the user's code, or the reason of an earlier event. Names are bounded
when a job is admitted. Composed texts are truncated here, in one place, for all events. Characters that cannot be
encoded are replaced.
"""

from __future__ import annotations

import functools

import msgspec

from ...schemas.body import Body

LONGEST_REASON_CHARACTERS = 16_000
"""The maximum length of a reason."""
_FIELDS = frozenset({"diagnostics", "failure", "reason"})


def truncate_reasons(body: Body) -> Body:
    """Returns the body with texts that fit into the log; the same object if nothing changes."""
    for name in _reasons_of(type(body)):
        text = getattr(body, name)
        if type(text) is str and not (text.isascii() and len(text) <= LONGEST_REASON_CHARACTERS):
            cut = truncate_text(text)
            if cut is not text:
                body = msgspec.structs.replace(body, **{name: cut})
    return body


def truncate_text(text: str) -> str:
    """Returns the text, or its beginning and its end if it is too long. A question mark replaces each character without
    an encoding."""
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
    return tuple(field for field in body.__struct_fields__ if field in _FIELDS)
