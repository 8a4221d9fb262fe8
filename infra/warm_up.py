"""The part of `make setup` for infra: resolves the jars, and writes the broker's class archive."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from confluent_kafka import KafkaException
from rich.console import Console

from .cds_archives import kafka_archive, write_archive_options
from .jars import JarsUnavailable, resolve
from .kafka import EmbeddedKafka, KafkaUnavailable
from .prerequisites import MissingPrerequisite, find_java
from .versions import ALL_JAR_SETS

# The JVM writes the archive while it exits, which takes seconds.
_DUMP_TIMEOUT_S = 120.0


def write_class_archive() -> bool:
    """Runs a broker through a first transaction and archives the loaded classes; returns False on failure.

    Raises KafkaUnavailable if the broker does not start or serve.
    """
    archive = kafka_archive(find_java())
    with (
        tempfile.TemporaryDirectory(prefix="tailrace-kafka-") as data_dir,
        write_archive_options(archive) as options,
    ):
        # A directory of its own: a broker over a temporary directory is killed, and writes no archive.
        kafka = EmbeddedKafka(Path(data_dir), jvm_options=options)
        try:
            kafka.start()
            _exercise(kafka.bootstrap_servers)
        except KafkaException as error:
            raise KafkaUnavailable(f"Kafka started but did not serve a first transaction: {error}") from None
        finally:
            kafka.stop(_DUMP_TIMEOUT_S)
    return archive.exists()


def _exercise(bootstrap_servers: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
    admin = AdminClient(servers)
    for created in admin.create_topics([NewTopic("warm-up", 1, 1)]).values():
        created.result()
    consumer = Consumer({**servers, "group.id": "warm-up", "auto.offset.reset": "earliest"})
    producer = Producer({**servers, "transactional.id": "warm-up"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("warm-up", b"once")
    producer.flush()
    producer.send_offsets_to_transaction(
        [TopicPartition("warm-up", 0, 0)], consumer.consumer_group_metadata()
    )
    producer.commit_transaction()
    consumer.assign([TopicPartition("warm-up", 0, 0)])
    consumer.poll(10)
    consumer.close()


def main() -> int:
    """Prepares everything; on failure prints one line to stderr and returns 1."""
    console = Console(stderr=True)
    try:
        for jars in ALL_JAR_SETS:
            resolve(jars)
        if not kafka_archive(find_java()).exists():
            with console.status("Writing a class archive, so that Kafka starts faster (once) ..."):
                written = write_class_archive()
            console.print(
                "Kafka's class archive: "
                + ("written" if written else "not written: this Java does not support it")
            )
    except (JarsUnavailable, MissingPrerequisite, KafkaUnavailable) as error:
        print(f"tailrace: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
