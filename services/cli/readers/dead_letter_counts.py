"""Counts the dead letters of a cluster by topic: `tailrace cluster status` prints them."""

from __future__ import annotations

from typing import Final

import msgspec

from ....schemas.dead_letters import DeadLetter
from ...configuration import Configuration
from ...log import LogUnavailable
from ...log.dead_letters import NoSuchTopic, read_dead_letters
from ..render.output import print_progress

MOST_READ: Final = 1000
"""The number of the last letters that are read; each may have 16 MiB."""


class DeadLetterCount(msgspec.Struct, frozen=True):
    """The records of a topic that were ignored or refused. `offset` and `reason` are those of the last one."""

    topic: str
    records: int
    partition: int
    offset: int
    reason: str


def count_dead_letters(configuration: Configuration) -> list[DeadLetterCount]:
    """Counts the records with a letter among the last 1,000 letters, each record once. Prints why, and returns nothing,
    if the letters cannot be read."""
    found: dict[str, dict[tuple[int, int], DeadLetter]] = {}
    try:
        for letter in read_dead_letters(configuration.kafka, configuration.cluster_id, last=MOST_READ):
            source = letter.source
            found.setdefault(source.topic, {})[source.partition, source.offset] = letter
    except NoSuchTopic:
        return []
    except LogUnavailable as error:
        print_progress(f"dead letters are not counted: {error}")
        return []
    return [_count(topic, list(letters.values())) for topic, letters in sorted(found.items())]


def _count(topic: str, letters: list[DeadLetter]) -> DeadLetterCount:
    last = letters[-1]
    return DeadLetterCount(topic, len(letters), last.source.partition, last.source.offset, last.reason)
