"""Reassembles records that are too large for one buffer.

The fragments of a record are consecutive buffers of one sender in one of its transactions: when the first can be read,
the others are in the channel. A record counts when its last fragment has arrived. Until then nothing is committed, so
no position lies within a record; a checkpoint taken meanwhile has the record in flight.

Spark's workers forward fragments unchanged. The stateless prefix, which all other records pass there, is applied here
to the reassembled record.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...operators.lazy_prefix import LazyPrefix
from ...records.buffers import HEADER_BYTES, BufferCodec, BufferHeader, join_fragments
from .barrier_handler import InputChannel


class FragmentAssembler:
    """Assembles fragments on the inputs of one attempt."""

    def __init__(
        self, before: Sequence[BufferCodec], behind: Sequence[BufferCodec], prefix: LazyPrefix
    ) -> None:
        """`before` and `behind` are codecs by input: of the senders' records, and of the prefix's output."""
        self._before = before
        self._behind = behind
        self.prefix = prefix
        self._parts: dict[InputChannel, list[bytes]] = {}

    @property
    def has_partial_record(self) -> bool:
        """Whether the first fragment of a record has arrived, and the last has not."""
        return bool(self._parts)

    def take(self, channel: InputChannel, header: BufferHeader, data: bytes) -> bytes | None:
        """Takes the next fragment of a sender. With the last one, returns the whole buffer with the prefix applied.

        Raises UserCodeError if the prefix does.
        """
        parts = self._parts.setdefault(channel, [])
        parts.append(data[HEADER_BYTES:])
        if not header.last_fragment:
            return None
        del self._parts[channel]
        whole = join_fragments(header, parts)
        if not self.prefix.configs:
            return whole
        found, batch = self._before[channel[0]].decode(whole)
        made = self.prefix.process(batch)
        with self.prefix.with_declared_types():
            return self._behind[channel[0]].encode(found, made)
