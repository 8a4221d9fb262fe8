"""Detects that a topic of the cluster was deleted, or created again, while a process runs.

A consumer may take half a minute to report that its topic is gone, and never reports that it was created again: it just
continues to read. A topic has an id (KIP-516) that changes when it is created again. This watch requests it every few
seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka.admin import AdminClient

from ...infra import threads
from ...infra.logging_setup import logger
from .event_log import LogUnavailable
from .topics import TopicDescription, describe_topics

_log = logger(__name__)
LOOK_S: Final = 2.0
_LOOKS: Final = 4
"""The number of consecutive checks that must fail: a broker that has just started may not know all topics yet."""


class TopicReplaced(LogUnavailable):
    """The topic that a process depends on was deleted, or created again."""


class TopicWatch:
    """Checks topics in its own thread, from `start` to `close`.

    `vital` is the topic without which the process has to end: `on_loss` is called once. For the others there is one log
    line for each loss.
    """

    def __init__(
        self, admin: AdminClient, vital: str, others: Sequence[str], on_loss: Callable[[Exception], None]
    ) -> None:
        self._admin = admin
        self._vital = vital
        self._topics = [vital, *others]
        self._on_loss = on_loss
        self._known: dict[str, str | None] = {}
        """Topic -> its id when it was first seen or last changed."""
        self._missed: dict[str, int] = {}
        """Topic -> the number of consecutive checks in which it was missing or changed."""
        self._closed = threading.Event()
        self._thread = threads.Thread(target=self._run, name="topics")

    def start(self) -> None:
        """Starts the thread; call it once."""
        self._thread.start()

    def close(self) -> None:
        """Stops the checks; does not wait for an answer."""
        self._closed.set()

    def check(self) -> None:
        """Checks once. A failed request is ignored until the next check."""
        try:
            found = describe_topics(self._admin, self._topics)
        except LogUnavailable:
            return
        for topic, described in found.items():
            self._compare(topic, described)

    def _compare(self, topic: str, described: TopicDescription | None) -> None:
        if described is not None:
            known = self._known.setdefault(topic, described.topic_id)
            is_told = self._missed.get(topic, 0) >= _LOOKS
            if is_told:
                _log.info("the topic exists again", topic=topic)
                self._known[topic] = described.topic_id
            if is_told or known == described.topic_id:
                self._missed.pop(topic, None)
                return
        if described is None and topic not in self._known:
            # It never existed; its user reports that.
            return
        missed = self._missed[topic] = self._missed.get(topic, 0) + 1
        if missed != _LOOKS:
            return
        what = "was deleted" if described is None else "was deleted and created again"
        if described is not None:
            self._known[topic] = described.topic_id
            self._missed.pop(topic)
        if topic == self._vital:
            self._on_loss(
                TopicReplaced(f"{topic} {what} while this process ran: its state is no longer in the log")
            )
        else:
            _log.error(
                "a topic of the cluster was lost: `tailrace cluster start` creates it", topic=topic, what=what
            )

    def _run(self) -> None:
        self.check()
        while not self._closed.wait(LOOK_S):
            self.check()
