"""Whether a topic is still the one that progress was made in: its id, which Kafka draws when a topic is made (KIP-516).

A position says nothing about a topic that was deleted and made anew, by hand or by a broker that makes what is asked
for: an empty changelog looks as if nothing had been kept, and a channel that has grown past the position as if nothing
had been lost. So an attempt asks for the ids of its channels and its changelog when it begins, and commits them beside
its positions; its successor holds them against what is there (progress.py has how they are written).

Brokers older than Kafka 2.8 have no ids, and where nobody answers in time none are known: then nothing is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from ....infra import threads
from ..failures import ProgressLost
from .kafka import admin_client, connected
from .progress import changelog_id_of, generation_of, topic_id_of
from .transaction import ConsumedOffset

_TIMEOUT_S: Final = 3.0
_NONE: Final = "A" * 22
"""Of a broker that knows none: 16 bytes of zeros."""


class TopicIds:
    """Asks for them in a thread of its own, beside what else an attempt reads before it begins."""

    def __init__(self, bootstrap_servers: str, topics: Sequence[str]) -> None:
        self._found: Future[Mapping[str, str]] = Future()
        if topics:
            arguments = bootstrap_servers, topics
            threads.Thread(target=self._ask, args=arguments, name="topic-ids").start()
        else:
            self._found.set_result({})

    def known(self) -> Mapping[str, str]:
        """By topic; waits for the answer. What is not known is not in it."""
        return self._found.result()

    def _ask(self, bootstrap_servers: str, topics: Sequence[str]) -> None:
        client = admin_client(bootstrap_servers)
        try:
            found = _described(client, topics)
        except Exception:  # whoever needs the topic says what is wrong
            found = {}
        # Before the client is closed, which takes a while.
        self._found.set_result(found)


def still_valid(
    committed: Iterable[ConsumedOffset], generation: int, ids: Mapping[str, str], changelog: str | None
) -> Mapping[str, str]:
    """The ids that are known now, and for topics of which none is, those that this generation has committed.

    Raises ProgressLost where a topic is another one than when this generation committed something of it.
    """
    valid = dict(ids)
    for each in committed:
        if generation_of(each.metadata) != generation:
            continue
        noted = [(each.topic, topic_id_of(each.metadata))]
        if changelog is not None:
            noted.append((changelog, changelog_id_of(each.metadata)))
        for topic, known in noted:
            if known is None or valid.setdefault(topic, known) == known:
                continue
            raise ProgressLost(
                f"the topic {topic} was deleted, and is there again with the id {valid[topic]}: what it held is gone,"
                " and the job has to go back to a checkpoint (is auto.create.topics.enable on?)"
            )
    return valid


def is_anew(committed: ConsumedOffset, ids: Mapping[str, str]) -> bool:
    """Whether the topic is known to be another one than when that was committed, in whatever generation."""
    known = topic_id_of(committed.metadata)
    return known is not None and ids.get(committed.topic, known) != known


def _described(client: AdminClient, topics: Sequence[str]) -> dict[str, str]:
    connected(client, topics[0])
    asked = client.describe_topics(TopicCollection(list(topics)), request_timeout=_TIMEOUT_S)
    found = {}
    for topic, answer in asked.items():
        try:
            found[topic] = str(answer.result(_TIMEOUT_S).topic_id)
        except Exception:  # there is none of that name, or we may not look
            continue
    return {topic: known for topic, known in found.items() if known != _NONE}
