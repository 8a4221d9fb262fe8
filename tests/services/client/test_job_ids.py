"""The ids that clients give their jobs: readable, possible, and never the same twice."""

from __future__ import annotations

import pytest

from tailrace.schemas.ids import is_id
from tailrace.services.client.client import new_job_id


@pytest.mark.parametrize("name", ["Word Count", "", "x" * 1_000, "\N{SNOWMAN}"])
def test_an_id_has_64_random_bits(name: str) -> None:
    ids = {new_job_id(name) for _ in range(1_000)}
    assert len(ids) == 1_000
    for each in ids:
        readable, _, random = each.rpartition("-")
        assert is_id(each)
        assert is_id(readable)
        assert len(bytes.fromhex(random)) == 8
