"""Checks that Kafka answers before a command starts work that would wait long for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...configuration import Configuration

_TIMEOUT_S = 10.0
_CONNECT_S = 3.0


def check_kafka_reachable(configuration: Configuration) -> None:
    """Raises KafkaRefusal or KafkaUnreachable if this principal cannot use Kafka: what follows would retry for long."""
    from ....infra.kafka_check import check_connection

    check_connection(configuration.kafka, _TIMEOUT_S)


def silent_addresses(bootstrap_servers: str) -> list[str]:
    """Returns a line for each address (host:port,...) that accepts no connection."""
    answers = map(_explain_no_answer, bootstrap_servers.split(","))
    return [why for why in answers if why is not None]


def _explain_no_answer(server: str) -> str | None:
    """None where something accepts connections at host:port."""
    import socket

    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except socket.gaierror as error:
        return f"the host {host} is not known ({error.strerror}): is its name right?"
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return f"nobody answers at {server} ({reason}): is it up, is the port right?"
    return None
