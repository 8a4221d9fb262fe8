"""Takes the records of a sender in the same process, as Spark forwards them from a channel: with the stateless prefix
of the receiver applied, and as objects that nobody else holds."""

from __future__ import annotations

from collections.abc import Sequence

from ....schemas.types import OperatorConfig
from ...graph.chain import output_type
from ..records.batch import Batch
from .chain import StatelessPipeline
from .factory import build_prefix
from .local_exchange import LocalExchange


class LocalInput:
    """One input of an attempt."""

    def __init__(
        self, sender: OperatorConfig, output_tag: str | None, prefix: Sequence[OperatorConfig]
    ) -> None:
        """`sender` is the operator that sends, `prefix` the first operators of the receiver's vertex."""
        self._exchanges = [LocalExchange(sender, output_tag)]
        self._record_type = output_type(sender, output_tag)
        self._configs = prefix
        if prefix:
            self._exchanges.append(LocalExchange(prefix[-1], None))
        self._prefix: StatelessPipeline | None = None

    def take(self, batch: Batch) -> Batch:
        """Returns the records as the receiver takes them. Raises UserCodeError of the sender for a value of another
        type, and that of the prefix."""
        batch = self._exchanges[0].take(batch)
        if not self._configs:
            return batch
        if self._prefix is None:
            self._prefix = build_prefix(self._configs, self._record_type)
            self._prefix.open()
        return self._exchanges[1].take(self._prefix.process(batch))

    def close(self) -> None:
        """Closes the prefix. Raises UserCodeError."""
        if self._prefix is not None:
            self._prefix.close()
