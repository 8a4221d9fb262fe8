"""`tailrace kafka-tools`: runs Kafka's command line tools against the cluster's Kafka."""

from __future__ import annotations

import os
import subprocess
from typing import Annotated

import typer

from ....infra.jars import kafka_classpath, resolve
from ....infra.prerequisites import find_java
from ....infra.versions import KAFKA_TOOLS_JARS
from ..args.common_options import BootstrapServers, ClusterOptions, Home
from ..exit_codes import CommandFailure, ExitCode

_PACKAGE = "org.apache.kafka.tools"
TOOLS = {
    "kafka-topics": f"{_PACKAGE}.TopicCommand",
    "kafka-console-producer": f"{_PACKAGE}.ConsoleProducer",
    "kafka-console-consumer": f"{_PACKAGE}.consumer.ConsoleConsumer",
    "kafka-consumer-groups": f"{_PACKAGE}.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets": f"{_PACKAGE}.GetOffsetShell",
    "kafka-transactions": f"{_PACKAGE}.TransactionsCommand",
    "kafka-delete-records": f"{_PACKAGE}.DeleteRecordsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-acls": f"{_PACKAGE}.AclCommand",
}
"""The name of Kafka's script -> its Java class."""


def kafka_tools(
    tool: Annotated[
        str, typer.Argument(metavar="TOOL", help=f"{', '.join(TOOLS)}; the prefix `kafka-` is optional.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARGS]...", help="Arguments of the tool: everything after its name."),
    ] = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
) -> int:
    """Run one of Kafka's tools (kafka-topics, kafka-console-consumer, ...) against the cluster's Kafka.

    The command adds --bootstrap-server, unless the arguments contain it.
    """
    name = tool if tool.startswith("kafka-") else f"kafka-{tool}"
    if name not in TOOLS:
        raise CommandFailure(ExitCode.USAGE, f"there is no tool {tool!r}: use one of {', '.join(TOOLS)}")
    given = arguments or []
    if "--bootstrap-server" not in given:
        given = [
            "--bootstrap-server",
            ClusterOptions(home, bootstrap_servers).find().bootstrap_servers,
            *given,
        ]
    classpath = os.pathsep.join(map(str, [*kafka_classpath(), *resolve(KAFKA_TOOLS_JARS)]))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    command = [find_java(), "-XX:TieredStopAtLevel=1", quiet, "-cp", classpath, TOOLS[name], *given]
    return subprocess.run(command, check=False).returncode
