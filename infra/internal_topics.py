"""The topics that Kafka makes for itself at first use, made before anybody has a use for them.

A first consumer of a group, or a first transaction, waits for the topic of its coordinator, and is told to come back
meanwhile. Clients that know the address of a broker which is only starting may come first all the same, and the
broker makes the topic for them: a topic that exists by now is what was wanted, whoever made it.
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

# Kafka compacts its segments of 100 MiB only when they are full: some minutes of work for one job, and all of that is
# read when the coordinator of a restarted broker loads.
_COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 << 20),
    "min.cleanable.dirty.ratio": "0.2",
}

# Otherwise as Kafka itself would make them: name, the setting with the number of partitions, topic configuration.
_INTERNAL: Final = (
    (
        "__consumer_offsets",
        "offsets.topic.num.partitions",
        {**_COMPACTED, "compression.type": "producer"},
    ),
    (
        "__transaction_state",
        "transaction.state.log.num.partitions",
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
    """Creates those that are missing, with as many partitions as the broker's settings say; see `ensure`."""
    topics = [NewTopic(name, int(settings[count]), 1, config=own) for name, count, own in _INTERNAL]
    ensure(producer, admin, topics, look)


def ensure(
    producer: Producer, admin: AdminClient, topics: Sequence[NewTopic], look: Callable[[], None]
) -> None:
    """Returns when the broker lists all of `topics` to the producer; `admin` creates those that it does not list.

    `look` is called before each attempt; what it raises ends them.
    """
    while True:
        look()
        try:
            listed = producer.list_topics(timeout=_LIST_TIMEOUT_S).topics
        except KafkaException:
            continue
        missing = [each for each in topics if each.topic not in listed]
        if not missing:
            return
        for created in admin.create_topics(missing, request_timeout=_CREATE_TIMEOUT_S).values():
            try:
                created.result()
            except KafkaException:
                # It exists by now, or the broker is not ready for it yet: the list tells.
                time.sleep(_LOOK_S)
