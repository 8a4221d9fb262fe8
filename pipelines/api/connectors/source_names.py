"""Names of sources and sinks: what they read or write is part of the name, so that a plan tells them apart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from ....infra.redaction import redacted

_LONGEST: Final = 40
_MOST: Final = 3


def topics_name(kind: str, topics: Sequence[str]) -> str:
    """Such as `Source: Kafka orders, payments`."""
    return f"{kind} {_listed([_cut(each) for each in topics])}"


def paths_name(kind: str, paths: Sequence[str]) -> str:
    """Such as `Sink: Files report`: below the working directory without it, and of a long path its end."""
    return f"{kind} {_listed([_tail(redacted(_below(each))) for each in paths])}"


def _listed(shown: Sequence[str]) -> str:
    return ", ".join(shown[:_MOST]) + (", ..." if len(shown) > _MOST else "")


def _below(path: str) -> str:
    here = os.getcwd() + os.sep
    return path.removeprefix(here) or path


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _tail(text: str) -> str:
    return text if len(text) <= _LONGEST else f"...{text[3 - _LONGEST :]}"
