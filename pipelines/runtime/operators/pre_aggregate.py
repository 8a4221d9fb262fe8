"""pre_aggregate: reduces the records of a batch to one for each key, so that the shuffle sends less.

It stores nothing between batches. The timestamp of a result is the greatest of its records.
"""

from __future__ import annotations

from ..records.batch import Batch
from .aggregation import field_reduce
from .column_aggregation import ColumnAggregation
from .keyed import KeySelector
from .operator import Operator, OperatorSetup
from .user_functions import OrderedCalls, came_from, load, user_code


class PreAggregateOperator(Operator):
    """Computes sum, min, max, min_by or max_by within each batch."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._config = setup.config
        parameters = setup.parameters
        (selector,) = load(setup.config)
        self._record_type = setup.input_types[0]
        self._keys = KeySelector(selector, self._record_type, parameters.get("key_field"))
        function, field = parameters["function"], parameters.get("field")
        self._reduce = field_reduce(function, self._record_type, field)
        self._columns = ColumnAggregation.create(self._record_type, self._keys.column, function, field)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        groups = self._columns.fold(batch) if self._columns is not None and batch.is_columnar else None
        if groups is None:
            given = self._by_rows(batch)
        else:
            given = Batch.from_columns(groups.timestamps, groups.columns, self._record_type)
        with came_from():
            self.output.emit(given)

    def _by_rows(self, batch: Batch) -> Batch:
        reduce = self._reduce
        folded: dict[object, object] = {}
        latest: dict[object, int] = {}
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            keys = self._keys.select(records)
            for key, timestamp, value in zip(keys, batch.timestamps, records, strict=True):
                if key in folded:
                    folded[key] = reduce(folded[key], value)
                    latest[key] = max(latest[key], timestamp)
                else:
                    folded[key] = value
                    latest[key] = timestamp
        return Batch(list(latest.values()), list(folded.values()))
