"""Options of the topics that tailrace creates: those of the cluster, and those of jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ....infra.config.characters import is_plain
from ....infra.config.option_types import INT, OptionType, optional, pattern
from ....infra.config.options import ConfigOption
from .kinds import EVERYONE, MASTER

_NAME = re.compile(r"[a-z][a-z0-9._-]*")
_IN_SYNC = "min.insync.replicas"
OWN_SETTINGS = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
    "message.timestamp.type",
)
"""Settings of Kafka that tailrace itself gives each topic."""

Settings = tuple[tuple[str, str], ...]


def _read_settings(text: str) -> Settings:
    pairs = [part.partition("=") for part in text.split(";") if part.strip()]
    settings = tuple((name.strip(), value.strip()) for name, _, value in pairs)
    names = [name for name, _ in settings]
    if len(set(names)) < len(names) or any(
        not value or not is_plain(value) or not _NAME.fullmatch(name) for name, value in settings
    ):
        raise ValueError(text)
    return settings


_SETTINGS: OptionType[Settings] = OptionType(
    "name=value, several with ';' between them, or nothing",
    "topic settings of Kafka, name=value with ';' between them, or nothing",
    _read_settings,
    lambda settings: ";".join(f"{name}={value}" for name, value in settings),
)

REPLICATION_FACTOR = ConfigOption[int | None](
    key="topics.replication-factor",
    type=optional(INT),
    default=None,
    at_least=1,
    at_most=32_767,
    doc="How many replicas the topics have that tailrace creates, those of the cluster and those of jobs. `none`: the "
    "broker's default.replication.factor. Topics that exist stay as they are.",
    scopes=EVERYONE,
    ours=True,
)
MIN_INSYNC_REPLICAS = ConfigOption[int | None](
    key="topics.min-insync-replicas",
    type=optional(INT),
    default=None,
    at_least=1,
    at_most=32_767,
    doc="How many replicas must have a record before it is acknowledged, for topics that tailrace creates. `none`: the "
    "broker's min.insync.replicas.",
    scopes=EVERYONE,
    ours=True,
)
TOPIC_CONFIG = ConfigOption[Settings](
    key="topics.config",
    type=_SETTINGS,
    default=(),
    doc="Further settings of the topics that tailrace creates, by Kafka's names, such as `segment.ms=3600000`; also "
    "settings of a vendor's Kafka, for example for placement. "
    f"tailrace sets {', '.join(OWN_SETTINGS)} itself.",
    scopes=EVERYONE,
    ours=True,
)

_FAULTS = (
    "partitions",
    "replication.factor",
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "unclean.leader.election.enable",
)

ACCEPTED_SETTINGS = ConfigOption(
    key="topics.accepted-settings",
    type=pattern(
        f"some of {', '.join(_FAULTS)}, separated by commas, or nothing",
        lambda text: not text or all(name in _FAULTS for name in text.split(",")),
    ),
    default="",
    doc="Settings of the cluster's topics with which a jobmanager starts although they lose data: several partitions, "
    "a single replica, compaction, a limit of time or size, or unclean leader election. The error of a refused start "
    "names them.",
    scopes=MASTER,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    REPLICATION_FACTOR,
    MIN_INSYNC_REPLICAS,
    TOPIC_CONFIG,
    ACCEPTED_SETTINGS,
)


def find_contradictions(configuration: Mapping[str, str]) -> Iterator[str]:
    """Yields a line for each topic setting that can't be as configured."""
    replicas, in_sync = REPLICATION_FACTOR.of(configuration), MIN_INSYNC_REPLICAS.of(configuration)
    if replicas is not None and in_sync is not None and in_sync > replicas:
        yield (
            f"{MIN_INSYNC_REPLICAS.key} is {in_sync}: it must be at most {REPLICATION_FACTOR.key}, which is {replicas}"
        )
    for name, _ in TOPIC_CONFIG.of(configuration):
        if name in OWN_SETTINGS:
            yield f"{TOPIC_CONFIG.key} sets {name}: tailrace sets it itself, as the topic requires"
        if name == _IN_SYNC:
            yield f"{TOPIC_CONFIG.key} sets {name}: set {MIN_INSYNC_REPLICAS.key}"
