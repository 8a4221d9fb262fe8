"""Whether Kafka answers, before something is begun that would wait long for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import ExitCode, Failure

if TYPE_CHECKING:
    from ..configuration import Configuration

_PATIENCE_S = 5.0


def check_reachable(configuration: Configuration) -> None:
    """Raises Failure where Kafka does not answer: what creates topics would be patient."""
    from confluent_kafka import KafkaException

    from ..connections import admin

    try:
        admin(configuration).list_topics(timeout=_PATIENCE_S)
    except KafkaException as error:
        raise Failure(
            ExitCode.UNREACHABLE,
            f"Kafka at {configuration.bootstrap_servers} does not answer ({error.args[0].str()}): is it up?",
        ) from None
