"""The Python end of a split that Spark reads: sends its rows to the TaskExecutor. It runs in mapInArrow inside a Python
worker of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from ..common.frames import encode_frame
from .file_requests import ANSWER, BATCH, RowsSent, SendRows
from .worker_connections import GatewayAddress, connect

if TYPE_CHECKING:
    import pyarrow as pa


class RowSender(msgspec.Struct, frozen=True):
    """The function for mapInArrow. A full socket blocks the query; this is the backpressure."""

    path: str
    """The socket of the TaskExecutor."""
    token: str
    gateway: GatewayAddress | None = None
    """By which workers on other machines reach the TaskExecutor."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sends everything; returns no rows."""
        import pyarrow as pa

        with connect(self.path, self.gateway) as connection:
            connection.sendall(encode_frame(msgspec.msgpack.encode(SendRows(self.token))))
            for batch in batches:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, batch.schema) as stream:
                    stream.write_batch(batch)
                connection.sendall(encode_frame(BATCH, sink.getvalue().to_pybytes()))
            connection.sendall(encode_frame(ANSWER, msgspec.msgpack.encode(RowsSent())))
        yield from ()
