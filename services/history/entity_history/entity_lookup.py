"""Which entity somebody means: by id, by an unambiguous prefix of an id, or by name.

What is meant by KIND:ID is of that kind. An id counts before a name, and the whole of either before a prefix of it. Of
several jobs with a name, the only one that has not ended is meant. A
task is known by its name ('Source: x (1/4)', which --job makes unambiguous), by JOB/NAME, and by the id of any attempt
to run it; what belongs to a job may be named with a prefix of the job's id: j1/3 is checkpoint 3.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping

from ...core.role import CLIENT, JOB_MASTER, TASK_EXECUTOR
from .entities import Entity, EntityKind, EntityLifetime
from .event_formatting import shorten_ids

_KINDS: Mapping[str, EntityKind] = {each.value: each for each in EntityKind} | {
    "task_executor": EntityKind.TASK_EXECUTOR,
    "te": EntityKind.TASK_EXECUTOR,
    "leader": EntityKind.ROLE,
}
_ADDRESSES: Mapping[str, EntityKind] = {
    JOB_MASTER: EntityKind.JOB,
    TASK_EXECUTOR: EntityKind.TASK_EXECUTOR,
    CLIENT: EntityKind.CLIENT,
}
_MAX_OFFERED = 6
_MAX_COMPARED = 20_000


class UnknownEntity(LookupError):
    """The log knows nothing of that name; the message offers near ones."""


class AmbiguousEntity(LookupError):
    """Several things are called that, or begin with it; the message names them."""


class EntityQuery:
    """What somebody asks for."""

    def __init__(self, text: str, job: str | None = None, *, plain: bool = False) -> None:
        """`job`: an id of a job, or the beginning of one, that the entity is to belong to. `plain`: the text names no
        kind, whatever it begins with."""
        self.text = text
        self.job = job
        self._kind: EntityKind | None = None
        self._id = text
        if plain:
            return
        kind, colon, rest = text.partition(":")
        address, slash, instance = text.partition("/")
        if colon and rest and kind.lower() in _KINDS:
            self._kind, self._id = _KINDS[kind.lower()], rest
        elif slash and instance and address in _ADDRESSES:
            self._kind, self._id = _ADDRESSES[address], instance

    def ids(self) -> frozenset[Entity]:
        """Those that are meant if the log has one of them: what was asked for is an id."""
        kinds = EntityKind if self._kind is None else (self._kind,)
        return frozenset(Entity(each, self._id) for each in kinds)

    def matches(self, entity: Entity, life: EntityLifetime) -> bool:
        """Whether it may be the one that is meant."""
        if self._tier(entity, life) is not None:
            return True
        return self._kind is not None and EntityQuery(self.text, self.job, plain=True).matches(entity, life)

    def find(self, lives: Mapping[Entity, EntityLifetime], live_jobs: Collection[str] = ()) -> Entity:
        """The one that is meant; `live_jobs` are the ids of those that have not ended. Raises Unknown, Ambiguous."""
        try:
            return self._find(lives, live_jobs)
        except UnknownEntity:
            if self._kind is None:
                raise
            # A vertex may be called as a kind is: 'Slot: x (1/2)'.
            try:
                return EntityQuery(self.text, self.job, plain=True)._find(lives, live_jobs)
            except UnknownEntity:
                pass
            raise

    def _find(self, lives: Mapping[Entity, EntityLifetime], live_jobs: Collection[str]) -> Entity:
        tiers: list[list[Entity]] = [[], [], [], []]
        for entity, life in lives.items():
            tier = self._tier(entity, life)
            if tier is not None:
                tiers[tier].append(entity)
        for tier_no, found in enumerate(tiers):
            if len(found) > 1:
                found = _best(found) if tier_no < 2 else found
                found = _live(found, live_jobs)
            if len(found) == 1:
                return found[0]
            if found:
                raise AmbiguousEntity(self._several(found, lives))
        raise UnknownEntity(self._none(lives))

    def _tier(self, entity: Entity, life: EntityLifetime) -> int | None:
        """How well it fits, from 0; None: not at all."""
        if self._kind is not None and entity.kind is not self._kind:
            return None
        if self.job is not None and not (entity.job or "").startswith(self.job):
            return None
        wanted, folded = self._id, self._id.casefold()
        if wanted == entity.id or wanted in _full_names(entity, life):
            return 0
        if self.job is not None and entity.id == f"{entity.job}/{wanted}":
            return 0
        if any(folded == each.casefold() for each in life.names) or _is_role(entity, folded):
            return 1
        if (not _is_part(entity) or "/" in wanted) and entity.id.startswith(wanted):
            return 2
        if self._within_job(entity, life):
            return 2
        return 3 if any(each.casefold().startswith(folded) for each in life.names) else None

    def _within_job(self, entity: Entity, life: EntityLifetime) -> bool:
        """Whether it is named with the beginning of its job's id."""
        head, slash, rest = self._id.partition("/")
        if not slash or not rest or entity.job is None or entity.kind is EntityKind.JOB or not head:
            return False
        own = entity.id.removeprefix(f"{entity.job}/")
        return entity.job.startswith(head) and (rest == own or rest in life.names)

    def _several(self, found: list[Entity], lives: Mapping[Entity, EntityLifetime]) -> str:
        offered = "; ".join(_format_candidates(each, lives[each]) for each in found[:_MAX_OFFERED])
        more = f"; and {len(found) - _MAX_OFFERED} more" if len(found) > _MAX_OFFERED else ""
        of_jobs = all(each.job is not None and each.kind is not EntityKind.JOB for each in found)
        hint = f"say {'which --job it is of' if of_jobs else 'more of it'}, or KIND:ID"
        return f"{self.text!r} may be any of {len(found)}: {offered}{more}; {hint}"

    def _none(self, lives: Mapping[Entity, EntityLifetime]) -> str:
        of_job = "" if self.job is None else f" in job {self.job!r}"
        near = difflib.get_close_matches(self._id, self._names(lives), _MAX_OFFERED, 0.6)
        counts: dict[str, int] = {}
        for each in lives:
            counts[each.kind.value] = counts.get(each.kind.value, 0) + 1
        there = ", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items())
        if near:
            return f"the log tells nothing of {self.text!r}{of_job}: did you mean {', '.join(near)}?"
        return (
            f"the log tells nothing of {self.text!r}{of_job}; it tells of {there or 'nothing'}: "
            "`tailrace story` lists them"
        )

    def _names(self, lives: Mapping[Entity, EntityLifetime]) -> list[str]:
        names: dict[str, None] = {}
        for entity, life in lives.items():
            if self._kind in (None, entity.kind) and len(names) < _MAX_COMPARED:
                shown = life.names[:1] if entity.kind is EntityKind.TASK else (entity.id, *life.names[:1])
                names.update(dict.fromkeys(shown))
        return list(names)


def _is_part(entity: Entity) -> bool:
    """Whether its id begins with that of what it belongs to."""
    return entity.kind in (EntityKind.TASK, EntityKind.CHECKPOINT, EntityKind.SLOT)


def _is_role(entity: Entity, folded: str) -> bool:
    """ResourceManager is what people call resource_manager."""
    return entity.kind is EntityKind.ROLE and folded == entity.id.replace("_", "")


def _full_names(entity: Entity, life: EntityLifetime) -> Iterable[str]:
    """Names that are as good as an id."""
    if entity.kind is EntityKind.TASK:
        yield f"{entity.job}/{life.names[0] if life.names else ''}"
        yield from life.names[1:]


def _best(found: list[Entity]) -> list[Entity]:
    """A job is what people mean where a client is called as it is."""
    others = [each for each in found if each.kind is not EntityKind.CLIENT]
    return others if len(others) == 1 else found


def _live(found: list[Entity], live_jobs: Collection[str]) -> list[Entity]:
    """Of several jobs the only one that has not ended, as in all commands."""
    live = [each for each in found if each.kind is EntityKind.JOB and each.id in live_jobs]
    return live if len(live) == 1 and all(each.kind is EntityKind.JOB for each in found) else found


def _format_candidates(entity: Entity, life: EntityLifetime) -> str:
    name = f" ({life.names[0]})" if life.names and entity.kind in (EntityKind.JOB, EntityKind.TASK) else ""
    return f"{entity if entity.kind is not EntityKind.TASK else shorten_ids(str(entity))}{name}"
