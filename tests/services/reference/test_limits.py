"""The page of limits is that of the constants, and each row names a file that there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.services.reference import limits


def test_page_is_up_to_date() -> None:
    assert limits.PATH.read_text("utf-8") == limits.text()


@pytest.mark.parametrize(
    "row", [row for _, rows in limits.SECTIONS for row in rows], ids=lambda row: row.what
)
def test_row_names_file(row: limits.Limit) -> None:
    assert (Path(limits.__file__).parents[2] / row.name).is_file()
    assert row.most
