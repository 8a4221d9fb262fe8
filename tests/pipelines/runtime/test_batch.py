"""A batch has the same records in every form, in any order of access."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.records.batch import Batch, concatenate
from tailrace.pipelines.types import Types

TYPE = Types.TUPLE([str, int])
pairs = st.lists(st.tuples(st.text(max_size=3), st.integers(0, 9)), max_size=12)


@st.composite
def forms(draw: st.DrawFn) -> tuple[Batch, list[int], list[tuple[str, int]]]:
    """Draws a batch of rows, of columns, or of columns with cached rows; and its content."""
    values = draw(pairs)
    timestamps = draw(st.lists(st.integers(0, 99), min_size=len(values), max_size=len(values)))
    form = draw(st.sampled_from(["rows", "timestamps as an array", "columns", "both"]))
    if form == "rows":
        return Batch(timestamps, values), timestamps, values
    if form == "timestamps as an array":
        return Batch.from_rows(pa.array(timestamps, pa.int64()), values), timestamps, values
    batch = Batch.from_columns(pa.array(timestamps, pa.int64()), TYPE.to_columns(values), TYPE)
    if form == "both":
        assert batch.values == values
    return batch, timestamps, values


@given(forms(), st.data())
def test_any_records_are_selected_by_position(
    form: tuple[Batch, list[int], list[tuple[str, int]]], data: st.DataObject
) -> None:
    batch, timestamps, values = form
    places = data.draw(st.lists(st.integers(0, len(values) - 1))) if values else []
    assert batch.take(places) == Batch([timestamps[i] for i in places], [values[i] for i in places])
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    assert batch.slice(start, stop) == Batch(timestamps[start:stop], values[start:stop])


@given(st.lists(forms(), max_size=4))
def test_concatenation_has_all_records_in_order(
    parts: list[tuple[Batch, list[int], list[tuple[str, int]]]],
) -> None:
    whole = concatenate([batch for batch, _, _ in parts])
    assert whole.timestamps == [t for _, timestamps, _ in parts for t in timestamps]
    assert whole.values == [v for _, _, values in parts for v in values]
    assert whole.columns(TYPE)[0].to_pylist() == [word for word, _ in whole.values]


@given(forms())
def test_replaced_records_keep_timestamps(form: tuple[Batch, list[int], list[tuple[str, int]]]) -> None:
    batch, timestamps, values = form
    assert batch.with_values(list(range(len(values)))) == Batch(timestamps, list(range(len(values))))
