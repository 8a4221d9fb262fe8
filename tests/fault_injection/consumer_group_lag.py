"""Reads consumer-group lag with Kafka's own tool, `kafka-consumer-groups --describe`."""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple

from tailrace.infra.jars import kafka_classpath, resolve
from tailrace.infra.prerequisites import find_java
from tailrace.infra.versions import KAFKA_TOOLS_JARS

_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_COLUMNS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")


class ConsumerGroupLag(NamedTuple):
    """The lag of one group in one partition. Offsets are -1 where the tool shows none."""

    group: str
    topic: str
    partition: int
    committed: int
    end: int
    lag: int


def describe(bootstrap_servers: str) -> list[ConsumerGroupLag]:
    """Returns what the tool reports for all groups of a Kafka cluster."""
    classpath = os.pathsep.join(map(str, [*kafka_classpath(), *resolve(KAFKA_TOOLS_JARS)]))
    command = [find_java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath, _TOOL]
    command += ["--bootstrap-server", bootstrap_servers, "--describe", "--all-groups", "--timeout", "30000"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    lags = []
    for line in result.stdout.splitlines():
        words = line.split()
        if len(words) < len(_COLUMNS) or words[0] == _COLUMNS[0]:
            continue
        group, topic, *numbers = words[: len(_COLUMNS)]
        lags.append(
            ConsumerGroupLag(group, topic, *(-1 if number == "-" else int(number) for number in numbers))
        )
    return lags
