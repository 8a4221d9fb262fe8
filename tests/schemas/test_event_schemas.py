"""Writers use the schemas of the log's feature level, and SchemasRegistered never changes."""

from __future__ import annotations

import pytest

from tailrace.schemas import avro, released
from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.event_schemas import older_schemas, schemas_of_release
from tailrace.schemas.everyone import SchemasRegistered
from tailrace.schemas.feature_level import FEATURE_LEVEL, FIRST_LEVEL


def test_schema_of_registration_never_changes() -> None:
    assert avro.fingerprint(SchemasRegistered.AVRO_NAME).hex() == "08e06b5e4c9b85f1", (
        "every release must read this event: a change of the Header needs a writer of its present schema"
    )


@pytest.mark.parametrize("release", released.releases())
def test_releases_of_one_level_have_same_schemas(release: str) -> None:
    """A change of a schema needs a feature level, because processes of both releases share a log."""
    level = released.feature_level(release)
    first = released.fingerprints(released.first_release_of(level))
    assert released.fingerprints(release) == first
    if level == FEATURE_LEVEL:
        assert {name: first.get(name) for name in EVENTS} == {name: avro.fingerprint(name) for name in EVENTS}


def test_every_level_below_highest_has_release() -> None:
    assert all(released.first_release_of(level) for level in range(FIRST_LEVEL, FEATURE_LEVEL))
    with pytest.raises(ValueError, match="no release has feature level 99"):
        released.first_release_of(99)


def test_release_writes_with_its_own_schemas_and_those_of_all_its_levels() -> None:
    written = {schema.fingerprint for schema in schemas_of_release()}
    assert {avro.fingerprint(name) for name in EVENTS} <= written
    for level in range(FIRST_LEVEL, FEATURE_LEVEL):
        assert {schema.fingerprint for schema in older_schemas(level).values() if schema} <= written
    assert older_schemas(FEATURE_LEVEL) == {}
    for schema in schemas_of_release():
        assert avro.fingerprint_of(schema.definition) == schema.fingerprint
