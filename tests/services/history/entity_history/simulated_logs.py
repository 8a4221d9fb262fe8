"""Histories for properties: events of simulated clusters, by seed, and every scenario."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

from tailrace.schemas.event import Record
from tailrace.services.history.entity_history.event_annotator import AnnotatedEvent, EventAnnotator

from ...scenarios import SCENARIOS
from ...simulated_cluster.chaos import Chaos

SEEDS = (2, 3, 6, 10)
HISTORIES = (*(f"seed {seed}" for seed in SEEDS), *SCENARIOS)


@functools.cache
def history(name: str) -> tuple[Record, ...]:
    """Returns the log of a scenario, or of `seed N`."""
    if name in SCENARIOS:
        return tuple(SCENARIOS[name]().log)
    chaos = Chaos(random.Random(int(name.partition(" ")[2])))
    chaos.run()
    return tuple(chaos.world.log)


def annotate_log(records: Sequence[Record]) -> tuple[EventAnnotator, list[AnnotatedEvent]]:
    """Returns the annotated events of a whole log, and the annotator."""
    annotator = EventAnnotator()
    return annotator, [annotator.annotate(record) for record in records]
