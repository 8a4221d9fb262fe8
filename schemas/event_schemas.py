"""The schemas of events that this release writes with, by feature level.

A feature level stands for rules and schemas (services/core/feature_level.py has the table). A log below the highest
level may be read by processes of an earlier release, so its writers use the schemas of the log's level: those of the
first release that had it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from . import avro, released
from .catalog import EVENTS
from .everyone import SchemasRegistered
from .feature_level import FEATURE_LEVEL, FIRST_LEVEL


class EventSchema(NamedTuple):
    """A schema of an event. `definition`: all of it, without docs."""

    name: str
    fingerprint: bytes
    definition: dict[str, Any]


@functools.cache
def schemas_of_release(folder: Path = released.FOLDER) -> tuple[EventSchema, ...]:
    """Returns all schemas that this release may write with, at any feature level."""
    found = {
        schema.fingerprint: schema
        for level in range(FIRST_LEVEL, FEATURE_LEVEL)
        for schema in older_schemas(level, folder).values()
        if schema is not None
    }
    found |= {schema.fingerprint: schema for schema in map(_own_schema, EVENTS)}
    return tuple(found.values())


def older_schemas(level: int, folder: Path = released.FOLDER) -> Mapping[str, EventSchema | None]:
    """Returns the events whose schema at the level is not the one of this release, with that schema; None for an event
    that the level does not have. Raises ValueError if no release has the level."""
    if level >= FEATURE_LEVEL:
        return {}
    release = released.first_release_of(level, folder)
    fingerprints, definitions = released.fingerprints(release, folder), released.definitions(release, folder)
    return {
        name: None
        if name not in fingerprints
        else EventSchema(name, fingerprints[name], avro.inlined(name, definitions))
        for name in EVENTS
        if fingerprints.get(name) != avro.fingerprint(name) and name != SchemasRegistered.AVRO_NAME
    }


def _own_schema(name: str) -> EventSchema:
    return EventSchema(name, avro.fingerprint(name), released.without_docs(avro.standalone(name)))
