"""`tailrace kafka-tools`: runs Kafka's command line tools against the cluster's Kafka."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
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
_COMMAND_CONFIG = "--command-config"
_CONFIGURED_BY = frozenset({_COMMAND_CONFIG, "--producer.config", "--consumer.config"})
"""The options with which a user names a properties file."""


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

    The command adds --bootstrap-server, and a file with the properties kafka.<property> that only its user can read,
    unless the arguments contain --bootstrap-server.
    """
    name = tool if tool.startswith("kafka-") else f"kafka-{tool}"
    if name not in TOOLS:
        raise CommandFailure(ExitCode.USAGE, f"there is no tool {tool!r}: use one of {', '.join(TOOLS)}")
    given = arguments or []
    if "--bootstrap-server" in given:
        return _run(name, given)
    configuration = ClusterOptions(home, bootstrap_servers).locate()
    given = ["--bootstrap-server", configuration.bootstrap_servers, *given]
    kafka = configuration.kafka
    if not kafka.properties or _CONFIGURED_BY.intersection(given):
        return _run(name, given)
    with tempfile.TemporaryDirectory(prefix="tailrace-") as directory:
        file = Path(directory) / "client.properties"
        kafka.write_java_properties(file)
        return _run(name, [*given, _COMMAND_CONFIG, str(file)], kafka.jvm_options())


def _run(name: str, arguments: Sequence[str], jvm_options: Sequence[str] = ()) -> int:
    classpath = os.pathsep.join(map(str, [*kafka_classpath(), *resolve(KAFKA_TOOLS_JARS)]))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    java = [find_java(), "-XX:TieredStopAtLevel=1", quiet, *jvm_options]
    command = [*java, "-cp", classpath, TOOLS[name], *arguments]
    return subprocess.run(command, check=False).returncode
