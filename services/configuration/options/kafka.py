"""The client properties of Kafka: `kafka.<property>`, by the names in infra/kafka_properties.py.

A cluster has up to four principals. `kafka.<property>` is for all of them, and for commands; a process of the cluster
may have another value, `kafka.jobmanager.<property>` and so on. So one file can describe a whole cluster, and each
machine may have the part that it needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from ....infra.config.option_types import pattern
from ....infra.config.options import ConfigOption
from ....infra.kafka_connection import KafkaConnection
from ....infra.kafka_properties import find_error
from .cluster import BOOTSTRAP_SERVERS
from .kinds import EVERYONE

PREFIX = "kafka."
_VALUE = pattern("a text without line breaks", lambda text: bool(text) and text.isprintable())


class KafkaUser(StrEnum):
    """Who connects to Kafka; each may be another principal."""

    COMMAND = ""
    JOBMANAGER = "jobmanager"
    TASKMANAGER = "taskmanager"
    TASKS = "tasks"


_USERS = "|".join(user for user in KafkaUser if user)
_KEY = re.compile(rf"kafka\.(?:({_USERS})\.)?(.+)", re.DOTALL)

KAFKA_PROPERTY = ConfigOption(
    key="kafka.<property>",
    type=_VALUE,
    default="",
    doc="A client property of Kafka, such as kafka.security.protocol, for all connections to `bootstrap.servers`. "
    "[security.md](security.md) lists those of TLS and SASL. A secret is given as a file: "
    "kafka.sasl.password-file.",
    scopes=EVERYONE,
    ours=True,
)
KAFKA_JOBMANAGER_PROPERTY = ConfigOption(
    key="kafka.jobmanager.<property>",
    type=_VALUE,
    default="",
    doc="The value of kafka.<property> for jobmanagers.",
    scopes=EVERYONE,
    ours=True,
)
KAFKA_TASKMANAGER_PROPERTY = ConfigOption(
    key="kafka.taskmanager.<property>",
    type=_VALUE,
    default="",
    doc="The value of kafka.<property> for the control plane of TaskExecutors: the log and heartbeats.",
    scopes=EVERYONE,
    ours=True,
)
KAFKA_TASKS_PROPERTY = ConfigOption(
    key="kafka.tasks.<property>",
    type=_VALUE,
    default="",
    doc="The value of kafka.<property> for tasks: StreamTasks and Spark's queries, that is channels, changelogs, and "
    "Kafka sources and sinks.",
    scopes=EVERYONE,
    ours=True,
)
OPTIONS: tuple[ConfigOption[Any], ...] = (
    KAFKA_PROPERTY,
    KAFKA_JOBMANAGER_PROPERTY,
    KAFKA_TASKMANAGER_PROPERTY,
    KAFKA_TASKS_PROPERTY,
)
"""Templates: their keys stand for many."""


def is_property(key: str) -> bool:
    """Returns whether the key is that of a client property."""
    return key.startswith(PREFIX)


def find_property(key: str) -> ConfigOption[str] | None:
    """Returns the option of a client property; None if it cannot be set."""
    found = _KEY.fullmatch(key)
    if found is None or find_error(found[2]) is not None:
        return None
    return ConfigOption(key=key, type=_VALUE, default="", doc=KAFKA_PROPERTY.doc, scopes=EVERYONE, ours=True)


def explain_property(key: str) -> str:
    """Returns one line about a key for which `find_property` returns None."""
    found = _KEY.fullmatch(key)
    user, name = ("", key.removeprefix(PREFIX)) if found is None else (found[1], found[2])
    return (
        find_error(name, f"{PREFIX}{user}." if user else PREFIX) or f"{key} is no property of a Kafka client"
    )


def key_of_variable(name: str) -> str | None:
    """Returns the key of a client property from the name of its environment variable; None for others.

    Names of properties have no `_` and no `-`, except for `-file` at their end.
    """
    lower = name.lower()
    if not lower.startswith("tailrace_kafka_"):
        return None
    key = lower.removeprefix("tailrace_").replace("_", ".")
    return f"{key.removesuffix('.file')}-file" if key.endswith(".file") else key


def connection_of(configuration: Mapping[str, str], user: KafkaUser) -> KafkaConnection:
    """Returns how `user` connects to Kafka, unchecked."""
    common: dict[str, str] = {}
    own: dict[str, str] = {}
    for key, text in configuration.items():
        found = _KEY.fullmatch(key)
        if found is not None and found[1] is None:
            common[found[2]] = text
        elif found is not None and found[1] == user:
            own[found[2]] = text
    return KafkaConnection(BOOTSTRAP_SERVERS.of(configuration), {**common, **own})


def find_contradictions(configuration: Mapping[str, str], user: KafkaUser) -> Iterator[str]:
    """Yields one line for each contradiction between the properties of a user."""
    where = f" (for {PREFIX}{user}.<property>)" if user else ""
    for error in connection_of(configuration, user).errors(PREFIX):
        yield f"{error}{where}"
