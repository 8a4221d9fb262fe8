"""Warms Spark with a few real-time queries that end as soon as their task runs.

The first query of a JVM takes seconds, because it loads and compiles classes; the tenth takes a third of a second.
"""

from __future__ import annotations

import logging
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from ....infra.kafka_connection import KafkaConnection
from ...graph.physical_plan import WARM_UP_TOPIC
from ..common.kafka_clients import admin_client
from .buffer_forwarder import BufferForwardingPlan
from .partition_forwarder import PartitionForwarder
from .query import QueryMode, start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

ROUNDS: Final = 6
"""The fifth query takes half of the second's time."""
_TIMEOUT_S: Final = 60.0


def warm_up(
    spark: SparkSession,
    kafka: KafkaConnection,
    scratch: Path,
    wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Runs some queries one after another while `wanted` is true.

    A failure only costs time at the next query.
    """
    try:
        _ensure_topic(kafka)
        with tempfile.TemporaryDirectory(prefix="tailrace-") as directory:
            for number in range(ROUNDS):
                if not wanted():
                    return
                path = Path(directory) / f"{number}"
                _round(spark, kafka, scratch / f"warm-up-{path.parent.name}-{number}", path)
    except Exception as error:
        if wanted():
            log.warning("Spark could not be warmed up: %s", error)


def _round(spark: SparkSession, kafka: KafkaConnection, checkpoint: Path, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as lobby:
        lobby.bind(str(path))
        lobby.listen()
        lobby.settimeout(_TIMEOUT_S)
        nobody = PartitionForwarder(0, str(path), BufferForwardingPlan({}))
        query = start_query(spark, kafka, {WARM_UP_TOPIC: {0: 0}}, nobody, QueryMode.REAL_TIME, checkpoint)
        try:
            lobby.accept()[0].close()
        finally:
            query.stop()


def _ensure_topic(kafka: KafkaConnection) -> None:
    admin = admin_client(kafka)
    for future in admin.create_topics([NewTopic(WARM_UP_TOPIC, 1)]).values():
        try:
            future.result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
