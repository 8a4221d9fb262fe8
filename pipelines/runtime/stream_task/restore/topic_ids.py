"""Detects whether a topic is still the one in which progress was made, by its id (KIP-516).

A position means nothing for a topic that was deleted and created again, by hand or by a broker with auto-creation: an
empty changelog would look like no state, and a channel that has grown past the position like no loss. So an attempt
reads the ids of its channels and its changelog when it starts (progress_evidence.py) and records them with its
positions; its successor compares them.

Brokers older than Kafka 2.8 have no ids. If no broker answers in time, ids are unknown. Then nothing is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from ...common.failures import ProgressLostError
from ..state.progress_entry import ProgressEntry

_NONE: Final = "A" * 22
"""The id from a broker that has no topic ids: 16 zero bytes."""


def still_valid(
    entry: ProgressEntry | None, generation: int, ids: Mapping[str, str], changelog: str
) -> Mapping[str, str]:
    """Returns the currently known ids, and for topics without a known id those that this generation has written.

    Raises ProgressLost if a topic is not the one in which this generation wrote the entry.
    """
    valid = dict(ids)
    if entry is None or entry.generation != generation:
        return valid
    for topic, known in _written(entry, changelog):
        if known is not None and valid.setdefault(topic, known) != known:
            raise ProgressLostError(made_anew(topic, valid[topic]))
    return valid


def made_anew(topic: str, topic_id: str) -> str:
    """Returns the message about a topic that was deleted and created again."""
    return (
        f"the topic {topic} was deleted, and is there again with the id {topic_id}: its content is lost, and the job"
        " must roll back to a checkpoint (is auto.create.topics.enable on?)"
    )


def recreated_topics(entry: ProgressEntry | None, ids: Mapping[str, str]) -> frozenset[str]:
    """Returns the inputs that are known to be other topics than when the entry was written, in any generation."""
    inputs = () if entry is None else entry.inputs
    return frozenset(
        input_.topic
        for input_ in inputs
        if input_.topic_id is not None and ids.get(input_.topic, input_.topic_id) != input_.topic_id
    )


def read_topic_ids(client: AdminClient, topics: Sequence[str], timeout_s: float) -> dict[str, str]:
    """Returns the known ids by topic, as Kafka has them now. Raises KafkaException."""
    if not topics:
        return {}
    futures = client.describe_topics(TopicCollection(list(topics)), request_timeout=timeout_s)
    found = {}
    for topic, answer in futures.items():
        try:
            found[topic] = str(answer.result(timeout_s).topic_id)
        except Exception:  # the topic does not exist, or this client may not describe it
            continue
    return {topic: known for topic, known in found.items() if known != _NONE}


def _written(entry: ProgressEntry, changelog: str) -> Iterator[tuple[str, str | None]]:
    yield changelog, entry.changelog_id
    for input_ in entry.inputs:
        yield input_.topic, input_.topic_id
