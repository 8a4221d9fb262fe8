"""Checks that Kafka answers before a command starts work that would wait long for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..exit_codes import CommandFailure, ExitCode

if TYPE_CHECKING:
    from ...configuration import Configuration

_TIMEOUT_S = 5.0
_CONNECT_S = 3.0


def check_kafka_reachable(configuration: Configuration) -> None:
    """Raises CommandFailure where Kafka does not answer: what creates topics would be patient."""
    silent = silent_addresses(configuration.bootstrap_servers)
    if len(silent) == len(configuration.bootstrap_servers.split(",")):
        raise CommandFailure(
            ExitCode.UNREACHABLE,
            f"there is no Kafka at {configuration.bootstrap_servers}: {'; '.join(silent)}",
        )
    from confluent_kafka import KafkaException

    from ...log.factory import create_admin_client

    try:
        create_admin_client(configuration).list_topics(timeout=_TIMEOUT_S)
    except KafkaException as error:
        raise CommandFailure(
            ExitCode.UNREACHABLE,
            f"Kafka at {configuration.bootstrap_servers} does not answer ({error.args[0].str()}): is it up?",
        ) from None


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
