"""Takes the records of a sender in the same process, as Spark forwards them from a channel: with the stateless prefix
of the receiver applied, and as objects that nobody else holds."""

from __future__ import annotations

from ....schemas.types import OperatorConfig
from ..records.batch import Batch
from .lazy_prefix import LazyPrefix
from .local_exchange import LocalExchange


class LocalInput:
    """One input of an attempt."""

    def __init__(self, sender: OperatorConfig, output_tag: str | None, prefix: LazyPrefix) -> None:
        """`sender` is the operator that sends, `prefix` the first operators of the receiver's vertex."""
        self._sent = LocalExchange(sender, output_tag, limits_size=True)
        self._prefix = prefix
        self._made = LocalExchange(prefix.configs[-1], None) if prefix.configs else None

    def take(self, batch: Batch) -> Batch:
        """Returns the records as the receiver takes them. Raises UserCodeError of the sender for a value of another
        type, that of the prefix, and TaskError for a record that is too large for a channel."""
        batch = self._sent.take(batch)
        return batch if self._made is None else self._made.take(self._prefix.process(batch))
