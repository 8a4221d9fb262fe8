"""The ids that clients create for jobs: readable, valid and unique."""

from __future__ import annotations

import pytest

from tailrace.schemas.ids import is_id
from tailrace.services.client.client import new_job_id
from tailrace.services.configuration.options.tenants import MAX_NAME_LENGTH, job_id_prefix


@pytest.mark.parametrize("tenant", ["", "pay", "t" * MAX_NAME_LENGTH])
@pytest.mark.parametrize("name", ["Word Count", "pay_x", "", "x" * 1_000, "\N{SNOWMAN}"])
def test_id_has_128_random_bits(name: str, tenant: str) -> None:
    ids = {new_job_id(name, tenant) for _ in range(1_000)}
    assert len(ids) == 1_000
    for id_ in ids:
        readable, _, random = id_.rpartition("-")
        assert is_id(id_)
        assert is_id(readable)
        assert readable.startswith(job_id_prefix(tenant))
        assert ("_" in readable) == bool(tenant)
        assert len(bytes.fromhex(random)) == 16
