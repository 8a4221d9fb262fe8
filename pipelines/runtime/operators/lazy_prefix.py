"""The stateless prefix of a vertex in its StreamTask, for records that do not pass Spark's workers: reassembled ones,
and those that a sender in the same process hands over. Built when the first such record arrives."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from ....schemas.types import OperatorConfig
from ...types import PICKLED, RecordType
from ..records.batch import Batch
from .chain import StatelessPipeline
from .factory import build_prefix


class LazyPrefix:
    """The prefix of one subtask."""

    def __init__(self, configs: Sequence[OperatorConfig] = (), input_type: RecordType = PICKLED) -> None:
        self.configs = configs
        self._input_type = input_type
        self._pipeline: StatelessPipeline | None = None

    def process(self, batch: Batch) -> Batch:
        """Returns the resulting records. Raises UserCodeError."""
        return self._opened().process(batch)

    def with_declared_types(self) -> AbstractContextManager[None]:
        """See StatelessPipeline."""
        return self._opened().with_declared_types()

    def _opened(self) -> StatelessPipeline:
        if self._pipeline is None:
            self._pipeline = build_prefix(self.configs, self._input_type)
            self._pipeline.open()
        return self._pipeline

    def close(self) -> None:
        """Closes it, if it was opened. Raises UserCodeError."""
        if self._pipeline is not None:
            self._pipeline.close()
