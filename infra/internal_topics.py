"""Creates Kafka's internal topics before their first use.

The first consumer of a group, and the first transaction, would otherwise retry until the topic of its coordinator
exists. Clients that know the address of a starting broker may still be faster, and the broker then creates the topic
for them: an existing topic is accepted, whoever created it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

_LOOK_S: Final = 0.02
_LIST_TIMEOUT_S: Final = 1.0
_CREATE_TIMEOUT_S: Final = 5.0

# Kafka compacts its segments of 100 MiB only when they are full, which is some minutes of work for one job; the
# coordinator of a restarted broker reads all of it when it loads.
_COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 << 20),
    "min.cleanable.dirty.ratio": "0.2",
}

# Otherwise as Kafka itself creates them: name, the settings with the numbers of partitions and replicas, topic
# configuration.
_INTERNAL: Final = (
    (
        "__consumer_offsets",
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        {**_COMPACTED, "compression.type": "producer"},
    ),
    (
        "__transaction_state",
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        {
            **_COMPACTED,
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
        },
    ),
)


def ensure_internal_topics(
    producer: Producer, admin: AdminClient, settings: Mapping[str, str], look: Callable[[], None]
) -> None:
    """Creates the missing topics, with partitions and replicas from the broker's settings; see `ensure`."""
    topics = [
        NewTopic(name, int(settings[count]), int(settings[replicas]), config=own)
        for name, count, replicas, own in _INTERNAL
    ]
    ensure(producer, admin, topics, look)


def ensure(
    producer: Producer, admin: AdminClient, topics: Sequence[NewTopic], look: Callable[[], None]
) -> None:
    """Returns when the broker lists all of `topics` to the producer; `admin` creates the missing ones.

    `look` is called before each attempt; an exception from it ends the attempts.
    """
    while True:
        look()
        try:
            listed = producer.list_topics(timeout=_LIST_TIMEOUT_S).topics
        except KafkaException:
            continue
        missing = [topic for topic in topics if topic.topic not in listed]
        if not missing:
            return
        for created in admin.create_topics(missing, request_timeout=_CREATE_TIMEOUT_S).values():
            try:
                created.result()
            except KafkaException:
                # It exists by now, or the broker is not ready yet: the next listing shows which.
                time.sleep(_LOOK_S)
