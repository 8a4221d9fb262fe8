"""Finds the entity that a user names: by id, by an unambiguous prefix of an id, or by name.

KIND:ID names an entity of that kind. An id comes before a name, and a whole id or name before a prefix. Of several jobs
with one name, the only one that has not ended is meant. A task is known by its name ('Source: x (1/4)', which --job
makes unambiguous), by JOB/NAME, and by the id of any of its attempts. An entity of a job may be named with a prefix of
the job's id: j1/3 is checkpoint 3.

Only the end of the log decides which entity is meant. But an entity that matches mostly does so from its first event
on, so EntityCandidates collects its history from there, and the log need not be read again.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import islice

from ...core.role import CLIENT, JOB_MASTER, TASK_EXECUTOR
from ..cluster_view import live_jobs
from ..event_formatting import shorten_ids
from .entities import Entity, EntityKind, EntityLifetime
from .event_annotator import AnnotatedEvent, EventAnnotator
from .timeline import EntityHistoryBuilder

_KINDS: Mapping[str, EntityKind] = {kind.value: kind for kind in EntityKind} | {
    "task_executor": EntityKind.TASK_EXECUTOR,
    "te": EntityKind.TASK_EXECUTOR,
    "leader": EntityKind.ROLE,
}
_ADDRESSES: Mapping[str, EntityKind] = {
    JOB_MASTER: EntityKind.JOB,
    TASK_EXECUTOR: EntityKind.TASK_EXECUTOR,
    CLIENT: EntityKind.CLIENT,
}
_MAX_CANDIDATES = 32
"""If more entities match, the user hardly means one of them."""
_MAX_OFFERED = 6
_MAX_COMPARED = 20_000


class UnknownEntity(LookupError):
    """The log has no entity of that name; the message lists similar names."""


class AmbiguousEntity(LookupError):
    """Several entities have that name or prefix; the message lists them."""


class EntityQuery:
    """The name of an entity from a user."""

    def __init__(self, text: str, job: str | None = None) -> None:
        """`job`: the id of a job, or its prefix, that the entity must belong to."""
        self.text = text
        self.job = job
        self._readings: list[tuple[EntityKind | None, str]] = [(None, text)]
        """(kind, id or name), in the order of preference. A vertex may be called as a kind is: 'Slot: x (1/2)'."""
        kind, colon, rest = text.partition(":")
        address, slash, instance = text.partition("/")
        if colon and rest and kind.lower() in _KINDS:
            self._readings.insert(0, (_KINDS[kind.lower()], rest))
        elif slash and instance and address in _ADDRESSES:
            self._readings.insert(0, (_ADDRESSES[address], instance))

    def ids(self) -> frozenset[Entity]:
        """Returns the entities whose id is the text."""
        kind, text = self._readings[0]
        return frozenset(Entity(own_kind, text) for own_kind in EntityKind if kind in (None, own_kind))

    def matches(self, entity: Entity, life: EntityLifetime) -> bool:
        """Returns whether the query may mean the entity."""
        return any(self._tier(*reading, entity, life) is not None for reading in self._readings)

    def find(self, lives: Mapping[Entity, EntityLifetime], live_jobs: Collection[str] = ()) -> Entity:
        """Returns the entity that is meant. `live_jobs`: the ids of jobs that have not ended. Raises UnknownEntity,
        AmbiguousEntity."""
        for reading in self._readings:
            tiers: dict[int, list[Entity]] = {}
            for entity, life in lives.items():
                tier = self._tier(*reading, entity, life)
                if tier is not None:
                    tiers.setdefault(tier, []).append(entity)
            if tiers:
                tier = min(tiers)
                found = _prefer(tiers[tier], live_jobs, is_whole=tier < 2)
                if len(found) > 1:
                    raise AmbiguousEntity(self._several(found, lives))
                return found[0]
        raise UnknownEntity(self._none(lives))

    def _tier(self, kind: EntityKind | None, text: str, entity: Entity, life: EntityLifetime) -> int | None:
        """Returns how well the entity matches, from 0; None: not at all."""
        job, names, folded = entity.job or "", life.names, text.casefold()
        if kind not in (None, entity.kind) or not job.startswith(self.job or ""):
            return None
        exact = [entity.id] if self.job is None else [entity.id, entity.id.removeprefix(f"{job}/")]
        if entity.kind is EntityKind.TASK and names:
            exact += [f"{job}/{names[0]}", *names[1:]]
        if text in exact:
            return 0
        if any(folded == name.casefold() for name in names) or folded == entity.id.replace("_", ""):
            return 1
        is_part = entity.kind in (EntityKind.TASK, EntityKind.CHECKPOINT, EntityKind.SLOT)
        if (not is_part or "/" in text) and entity.id.startswith(text):
            return 2
        head, _, rest = text.partition("/")
        own = (*names, entity.id.removeprefix(f"{job}/"))
        if head and rest and is_part and job.startswith(head) and rest in own:
            # A prefix of the job's id stands for the job.
            return 2
        return 3 if any(name.casefold().startswith(folded) for name in names) else None

    def _several(self, found: list[Entity], lives: Mapping[Entity, EntityLifetime]) -> str:
        offered = []
        for entity in found[:_MAX_OFFERED]:
            has_name = lives[entity].names and entity.kind in (EntityKind.JOB, EntityKind.TASK)
            offered.append(f"{_shorten(entity)}{f' ({lives[entity].names[0]})' if has_name else ''}")
        more = f"; and {len(found) - _MAX_OFFERED} more" if len(found) > _MAX_OFFERED else ""
        are_of_jobs = all(entity.job is not None and entity.kind is not EntityKind.JOB for entity in found)
        hint = f"say {'which --job it is of' if are_of_jobs else 'more of it'}, or KIND:ID"
        return f"{self.text!r} may be any of {len(found)}: {'; '.join(offered)}{more}; {hint}"

    def _none(self, lives: Mapping[Entity, EntityLifetime]) -> str:
        kind, text = self._readings[0]
        of_job = "" if self.job is None else f" in job {self.job!r}"
        names: dict[str, None] = {}
        for entity, life in islice(lives.items(), _MAX_COMPARED):
            if kind in (None, entity.kind):
                ids = () if entity.kind is EntityKind.TASK else (entity.id,)
                names.update(dict.fromkeys((*ids, *life.names[:1])))
        near = difflib.get_close_matches(text, names, _MAX_OFFERED, 0.6)
        if near:
            return f"the log has no {self.text!r}{of_job}: did you mean {', '.join(near)}?"
        counts = Counter(entity.kind.value for entity in lives)
        there = ", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items())
        return (
            f"the log has no {self.text!r}{of_job}; it has {there or 'nothing'}: `tailrace story` lists them"
        )


def _prefer(found: list[Entity], live_jobs: Collection[str], *, is_whole: bool) -> list[Entity]:
    """Returns a job rather than a client of the same name, and of several jobs the only one that has not ended."""
    if is_whole:
        others = [entity for entity in found if entity.kind is not EntityKind.CLIENT]
        found = others if len(others) == 1 else found
    live = [entity for entity in found if entity.id in live_jobs]
    return live if len(live) == 1 and all(entity.kind is EntityKind.JOB for entity in found) else found


def _shorten(entity: Entity) -> str:
    return shorten_ids(str(entity)) if entity.kind is EntityKind.TASK else str(entity)


class EntityCandidates:
    """The histories of the entities that a query may mean. It follows an annotator from its first event on."""

    def __init__(
        self, wanted: EntityQuery, annotator: EventAnnotator, begin: Callable[[Entity], EntityHistoryBuilder]
    ) -> None:
        self._wanted = wanted
        self._annotator = annotator
        self._begin = begin
        self._timelines = {entity: begin(entity) for entity in wanted.ids()}
        self._matching: list[Entity] | None = []
        """The entities that match by name, not by id; None: there were too many."""

    def add(self, event: AnnotatedEvent) -> None:
        """Adds the next event."""
        timelines, lives = self._timelines, self._annotator.entities.lives
        for entity in event.entities:
            if entity not in timelines and lives[entity].first == event.offset:
                self._on_new_entity(entity, lives[entity])
            if entity in timelines:
                timelines[entity].add(event)

    def select(self) -> tuple[Entity, EntityHistoryBuilder | None]:
        """Returns the entity that is meant, as of the log so far, and its history; None if that was not collected
        from its beginning: there were too many matches, or it got its name late. Raises UnknownEntity,
        AmbiguousEntity."""
        live = live_jobs(self._annotator.fold.replica.states)
        found = self._wanted.find(self._annotator.entities.lives, live)
        return found, self._timelines.get(found)

    def _on_new_entity(self, entity: Entity, life: EntityLifetime) -> None:
        if self._matching is None or not self._wanted.matches(entity, life):
            return
        if len(self._matching) == _MAX_CANDIDATES:
            for match in self._matching:
                del self._timelines[match]
            self._matching = None
            return
        self._matching.append(entity)
        self._timelines[entity] = self._begin(entity)
