"""Names of sources and sinks. A name contains what they read or write, so that a plan tells them apart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from ....infra.redaction import redacted

_LONGEST: Final = 40
_MOST: Final = 3


def topics_name(kind: str, topics: Sequence[str]) -> str:
    """Returns a name such as `Source: Kafka orders, payments`."""
    return f"{kind} {_listed([_cut(topic) for topic in topics])}"


def paths_name(kind: str, paths: Sequence[str]) -> str:
    """Returns a name such as `Sink: Files report`. A path below the working directory is relative; a long path keeps
    its end."""
    return f"{kind} {_listed([_tail(redacted(_below(path))) for path in paths])}"


def _listed(shown: Sequence[str]) -> str:
    return ", ".join(shown[:_MOST]) + (", ..." if len(shown) > _MOST else "")


def _below(path: str) -> str:
    here = os.getcwd() + os.sep
    return path.removeprefix(here) or path


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _tail(text: str) -> str:
    return text if len(text) <= _LONGEST else f"...{text[3 - _LONGEST :]}"
