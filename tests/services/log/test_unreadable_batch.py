"""The end of a batch that the Kafka client cannot decompress is found in a few fetches, whatever follows it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.log.unreadable_batch import search_end


@given(first=st.integers(0, 1 << 40), records=st.integers(1, 1 << 31))
def test_end_is_first_offset_after_batch(first: int, records: int) -> None:
    asked: list[int] = []

    def is_in_batch(offset: int) -> bool:
        asked.append(offset)
        return first <= offset < first + records

    assert search_end(first, is_in_batch) == first + records
    assert len(asked) <= 2 * records.bit_length() + 1
