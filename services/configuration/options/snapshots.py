"""Options of state snapshots, and of the comparison of the masters' states."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import DURATION, INT, MEMORY, MINUTE, SECOND, switchable
from ....infra.config.options import ConfigOption
from .kinds import MASTER

SNAPSHOT_MAX_BYTES = ConfigOption[int | None](
    key="snapshot.max-bytes",
    type=switchable(MEMORY),
    default=20 << 20,
    at_least=1,
    doc="A snapshot of the log's state is created when the log has grown by this size since the last one. It limits "
    "what a master reads at start-up. Kafka's metadata.log.max.record.bytes.between.snapshots.",
    scopes=MASTER,
    ours=True,
)
SNAPSHOT_MAX_AGE = ConfigOption[int | None](
    key="snapshot.max-age",
    type=switchable(DURATION),
    default=60 * MINUTE,
    at_least=SECOND,
    doc="A snapshot is created when the last one is this old and the log has new events. Kafka's "
    "metadata.log.max.snapshot.interval.ms.",
    scopes=MASTER,
    ours=True,
)
STATE_HASH_INTERVAL = ConfigOption[int | None](
    key="state-hash.interval",
    type=switchable(INT),
    default=100_000,
    at_least=1,
    doc="The masters compare the hashes of their states after each multiple of this offset; a master that differs from "
    "the majority stops. The same for all masters.",
    scopes=MASTER,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (SNAPSHOT_MAX_BYTES, SNAPSHOT_MAX_AGE, STATE_HASH_INTERVAL)
