"""The records of a stream in the program that executes it: `DataStream.execute_and_collect`."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from ..types import PICKLED
from .executor import JobClient

T = TypeVar("T")


class CollectedRecords(Iterator[T], Generic[T]):
    """Yields the records of a job while it runs, each once, to the end of the job.

    `close`, or the end of a `with` block, cancels a job that still runs. Raises JobFailedError at its end.
    """

    def __init__(self, client: JobClient) -> None:
        self._client = client
        self._pickled = client.collected()
        self._is_closed = False

    @property
    def job_client(self) -> JobClient:
        """The job."""
        return self._client

    def __next__(self) -> T:
        if self._is_closed:
            raise StopIteration
        try:
            pickled = next(self._pickled)
        except BaseException:
            self._is_closed = True  # the job has ended
            raise
        found: Any = PICKLED.load([pickled])[0]
        record: T = found
        return record

    def close(self) -> None:
        """Cancels the job if it has not ended."""
        if not self._is_closed:
            self._is_closed = True
            self._client.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
