"""Warns of brokers whose release may lose the marker of a transaction (KAFKA-20734).

The fault is in Kafka 4.3.0, 4.3.1 and 4.4.0 (docs/notes/lost-markers.md). A broker says of which line of releases it
is, but not the number of its correction, so the warning says what to look for.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...infra import threads
from ...infra.kafka_connection import KafkaConnection
from ...infra.kafka_release import FAULTY, read_supported_level
from ...infra.logging_setup import logger

_log = logger(__name__)
REMEDY = (
    "run Kafka 4.2 or earlier, or a release that has the correction of KAFKA-20734; until then results may be "
    "returned twice after the loss of a broker"
)


def find_faulty_brokers(connection: KafkaConnection) -> Iterator[tuple[str, str | None]]:
    """Yields each bootstrap server with its fault, or None; a server that does not say its release is left out."""
    for server in connection.bootstrap_servers.split(","):
        try:
            level = read_supported_level(connection, server)
        except (OSError, ValueError) as error:
            _log.debug("the release of a broker is unknown", broker=server, reason=str(error))
            continue
        is_faulty = level is not None and level in FAULTY
        yield (
            server,
            f"Kafka at {server} is 4.3 or 4.4, which may lose the end of a transaction"
            if is_faulty
            else None,
        )


def warn_of_faulty_brokers(connection: KafkaConnection) -> None:
    """Warns once of all brokers with the fault; in a thread, because brokers may not answer."""

    def warn() -> None:
        faulty = [server for server, fault in find_faulty_brokers(connection) if fault is not None]
        if faulty:
            _log.warning(
                "this Kafka is 4.3 or 4.4, which may lose the end of a transaction (KAFKA-20734)",
                brokers=",".join(faulty),
                what_to_do=REMEDY,
            )

    threads.Thread(target=warn, name="release of Kafka").start()
