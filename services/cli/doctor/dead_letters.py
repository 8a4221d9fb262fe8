"""Checks whether records of others were refused or ignored: it names the last ones, and what to do about them."""

from __future__ import annotations

import time
from typing import Final

from ....schemas.dead_letters import DeadLetter
from ...log.codec import find_sender
from ...log.dead_letters import NoSuchTopic, count_dead_letters_since, read_dead_letters
from ...log.topics import dead_letters_topic, log_topic
from ..render.formatting import format_count
from .report import Report, Subject

_TIMEOUT_S: Final = 10.0
_DAY_MS: Final = 24 * 60 * 60 * 1000
_SHOWN: Final = 3
_LONGEST_REASON: Final = 300
_LONGEST_SENDER: Final = 80


def check_dead_letters(subject: Subject, report: Report) -> None:
    """Reports the number of dead letters of the last day, and the last three of them. Raises LogUnavailable."""
    configuration = subject.configuration
    kafka, cluster = configuration.kafka, configuration.cluster_id
    since_ms = int(time.time() * 1000) - _DAY_MS
    try:
        last = list(read_dead_letters(kafka, cluster, timeout_s=_TIMEOUT_S, last=_SHOWN))
        count = count_dead_letters_since(kafka, cluster, since_ms, timeout_s=_TIMEOUT_S)
    except NoSuchTopic as error:
        report.skip(str(error))
        return
    report_dead_letters(report, cluster, count, [each for each in last if each.time >= since_ms * 1000])


def report_dead_letters(report: Report, cluster: str, count: int, last: list[DeadLetter]) -> None:
    """Reports `count` letters of the last day. `last`: the last ones of these, oldest first."""
    if count == 0:
        report.ok("no record was refused or ignored in the last day")
        return
    report.warn(f"{dead_letters_topic(cluster)} got {format_count(count, 'letter')} in the last day")
    for letter in last:
        report.warn(_describe(letter), _remedy(letter, cluster))


def _describe(letter: DeadLetter) -> str:
    source, sender = letter.source, find_sender(letter.value or b"")
    named = (
        "its sender is unknown"
        if sender is None
        else f"its sender is {sender[:_LONGEST_SENDER]!r}, as it says"
    )
    where = f"{source.topic}, partition {source.partition}, offset {source.offset}"
    return f"{where}: {letter.reason[:_LONGEST_REASON]}; {named}"


def _remedy(letter: DeadLetter, cluster: str) -> str:
    topic = letter.source.topic
    if topic == log_topic(cluster):
        return (
            "it changed nothing; find out who may write the log, and take the right away from all but the cluster's "
            f"processes: tailrace kafka-tools kafka-acls --list --topic {topic}"
        )
    return "correct the request as the reason says, and send it again"
