"""The records of an asynchronous operator whose results are not emitted, and the watermarks between them.

A watermark closes a segment of the queue. Results are emitted in the order of the records, or as they come within the
first segment; its watermark follows when the segment is empty. So no result overtakes a watermark, and no watermark a
result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow as pa


class Request:
    """A record, and its results once they are known."""

    __slots__ = ("column", "number", "results", "row", "segment", "timestamp", "value")

    def __init__(self, number: int, timestamp: int, value: Any, column: pa.Array, row: int) -> None:
        """`column` has the encoded record at `row`."""
        self.number = number
        self.timestamp = timestamp
        self.value = value
        self.column = column
        self.row = row
        self.results: list[Any] | None = None
        self.segment: _Segment | None = None


class _Segment:
    """The records between two watermarks."""

    __slots__ = ("left", "requests", "watermark")

    def __init__(self) -> None:
        self.requests: deque[Request] = deque()
        """In the order in which they are emitted: all, or only those with results."""
        self.left = 0
        self.watermark: int | None = None
        """That follows the records; None: there is none yet."""


class RequestQueue:
    """The queue of one operator. `ordered`: whether results are emitted in the order of the records."""

    def __init__(self, *, ordered: bool) -> None:
        self._ordered = ordered
        self._segments: deque[_Segment] = deque()
        self._length = 0

    def __len__(self) -> int:
        """The number of records."""
        return self._length

    def add(self, request: Request) -> None:
        """Adds a record."""
        segment = self._last() if self._segments else None
        if segment is None or segment.watermark is not None:
            segment = _Segment()
            self._segments.append(segment)
        request.segment = segment
        segment.left += 1
        self._length += 1
        if self._ordered:
            segment.requests.append(request)

    def add_watermark(self, watermark: int) -> None:
        """Adds a watermark behind all records."""
        if not self._segments:
            self._segments.append(_Segment())
        self._last().watermark = watermark

    def complete(self, request: Request, results: list[Any]) -> None:
        """Sets the results of a record."""
        request.results = results
        if not self._ordered:
            assert request.segment is not None
            request.segment.requests.append(request)

    def take(self) -> Iterator[Request | int]:
        """Yields the records whose results are to be emitted now, and the watermarks between them."""
        segments = self._segments
        while segments:
            first = segments[0]
            requests = first.requests
            while requests and requests[0].results is not None:
                first.left -= 1
                self._length -= 1
                yield requests.popleft()
            if first.left:
                return
            segments.popleft()
            if first.watermark is not None:
                yield first.watermark

    def _last(self) -> _Segment:
        return self._segments[-1]
