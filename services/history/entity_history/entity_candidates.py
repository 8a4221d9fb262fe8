"""The stories of all who may be meant by what somebody asks for, collected while the log is read.

Who is meant is certain only at the end of the log. But whoever fits what is asked for, by id or by name, mostly does so
from its first event on; so its story can be collected from there, and the log need not be read once more.
"""

from __future__ import annotations

from collections.abc import Callable

from ..cluster_view import live_jobs
from .entities import Entity, EntityLifetime
from .entity_lookup import EntityQuery
from .event_annotator import AnnotatedEvent, EventAnnotator
from .timeline import EntityHistoryBuilder

_MAX_CANDIDATES = 32
"""Of so many that fit at once, the answer will hardly be one of them."""


class EntityCandidates:
    """Timelines of those that fit. Follows a Teller from its first event on, and has it count no events."""

    def __init__(
        self, wanted: EntityQuery, teller: EventAnnotator, begin: Callable[[Entity], EntityHistoryBuilder]
    ) -> None:
        self._wanted = wanted
        self._teller = teller
        self._begin = begin
        self._timelines = {each: begin(each) for each in wanted.ids()}
        self._fitting: list[Entity] = []
        """Those that were not asked for by their ids."""
        teller.entities.counting = False
        teller.entities.when_met = self._on_entity

    def add(self, told: AnnotatedEvent) -> None:
        """The next event."""
        timelines = self._timelines
        for each in told.entities:
            if each in timelines:
                timelines[each].add(told)

    def select(self) -> tuple[Entity, EntityHistoryBuilder | None]:
        """Who is meant, as far as the log was told, and its story; None where that was not collected from its beginning
        on: it was one of too many, or has got its name late. Raises Unknown, Ambiguous."""
        live = live_jobs(self._teller.fold.replica.states)
        found = self._wanted.find(self._teller.entities.lives, live)
        return found, self._timelines.get(found)

    def _on_entity(self, entity: Entity, life: EntityLifetime) -> None:
        if entity in self._timelines or not self._wanted.matches(entity, life):
            return
        if len(self._fitting) == _MAX_CANDIDATES:
            for each in self._fitting:
                del self._timelines[each]
            self._fitting.clear()
            self._teller.entities.when_met = None
            return
        self._fitting.append(entity)
        self._timelines[entity] = self._begin(entity)
