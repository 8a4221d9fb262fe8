"""The ids that users and clients choose: of clusters, jobs, TaskExecutors."""

from __future__ import annotations

import re

MAX_ID_LENGTH = 64
_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_ID_LENGTH}}}")


def is_id(text: str) -> bool:
    """Whether the text is 1 to 64 letters, digits, '-' or '_': ids become parts of topic names."""
    return _ID.fullmatch(text) is not None
