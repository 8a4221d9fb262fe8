"""Options that locate a cluster. Every process and command reads them first."""

from __future__ import annotations

import re
from typing import Any

from ....infra.config.option_types import DAY, DURATION, SECOND, choice, pattern
from ....infra.config.options import ConfigOption
from ....infra.logging_setup import LogFormat
from ....infra.redaction import has_user_information
from .kinds import BOTH, EVERYONE, FILE, MASTER, PATH, SERVER_LIST, TOPIC_PREFIX

_URL = re.compile(r"(https?|mock)://\S+")

CLUSTER_ID = ConfigOption(
    key="cluster.id",
    type=TOPIC_PREFIX,
    default="tailrace",
    doc="The cluster's name and the prefix of all its topics, such as `payments.prod`. Clusters with different names "
    "can share a Kafka.",
    scopes=EVERYONE,
    ours=True,
)
BOOTSTRAP_SERVERS = ConfigOption(
    key="bootstrap.servers",
    type=SERVER_LIST,
    default="",
    doc="Kafka, host:port,...; nothing: the Kafka of the cluster that runs in `home`. Named as Kafka names it.",
    scopes=EVERYONE,
    ours=True,
)
SCHEMA_REGISTRY_URL = ConfigOption(
    key="schema.registry.url",
    type=pattern(
        "a URL, http://... without a user and password (schema.registry.basic-auth.credentials-file is for these), or "
        "nothing",
        lambda text: not text or (bool(_URL.fullmatch(text)) and not has_user_information(text)),
    ),
    default="",
    doc="The schema registry; nothing: events are written in Avro's single-object encoding. Named as Kafka's "
    "serializers name it.",
    scopes=EVERYONE,
    ours=True,
)
SCHEMA_REGISTRY_CREDENTIALS_FILE = ConfigOption[str | None](
    key="schema.registry.basic-auth.credentials-file",
    type=FILE,
    default=None,
    doc="A file with users and passwords for schema registries, that of events and those of a program's Avro formats. "
    "Each line is `user:password`, for every registry, or `URL user:password`, for that one. A file, so that the "
    "password is in no configuration, environment, event or log. Every machine of the cluster needs it.",
    scopes=EVERYONE,
    ours=True,
)
HOME = ConfigOption(
    key="home",
    type=PATH,
    default=".tailrace",
    doc="Where the processes of this machine keep data, logs and pids, and where `tailrace.yaml` is looked for.",
    scopes=EVERYONE,
    ours=True,
)
SKIPPED_OFFSETS = ConfigOption(
    key="log.skipped-offsets",
    type=pattern(
        "offsets, 17,42 or nothing", lambda text: bool(re.fullmatch(r"([0-9]{1,18}(,[0-9]{1,18})*)?", text))
    ),
    default="",
    doc="Offsets of records in <cluster.id>.log that every reader skips: records that stop processes because they look "
    "like events of a newer release, or raise the feature level above this release's, or are the first of a batch that "
    "cannot be unpacked. Use it only if no newer release wrote them. The same for all processes of a cluster.",
    scopes=BOTH,
    ours=True,
)
OUTPUT_RETENTION = ConfigOption(
    key="job.output.retention",
    type=DURATION,
    default=7 * DAY,
    at_least=SECOND,
    doc="How long the output of a job can be read by `tailrace output`. Kafka deletes older records while the job "
    "runs, in segments of 64 MiB; the leader deletes the topic this long after the job's end.",
    scopes=MASTER,
    ours=True,
)
LOG_FORMAT = ConfigOption(
    key="log.format",
    type=choice(LogFormat),
    default=LogFormat.TEXT,
    doc="The format of the log lines of a process and its tasks. json: one object per line, with `timestamp`, `level`, "
    "`logger`, `event` and values such as `job_id`; with `trace_id` if a request has a trace context "
    "([traces.md](traces.md#logs)).",
    scopes=BOTH,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    CLUSTER_ID,
    BOOTSTRAP_SERVERS,
    SCHEMA_REGISTRY_URL,
    SCHEMA_REGISTRY_CREDENTIALS_FILE,
    HOME,
    SKIPPED_OFFSETS,
    OUTPUT_RETENTION,
    LOG_FORMAT,
)
