"""The ids that users and clients choose: of clusters, jobs, TaskExecutors."""

from __future__ import annotations

import re

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_id(text: str) -> bool:
    """Whether the text is 1 to 64 letters, digits, '-' or '_': ids become parts of topic names."""
    return _ID.fullmatch(text) is not None
