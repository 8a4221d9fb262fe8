"""`tailrace cluster doctor`: checks what the processes of a cluster need, with the credentials of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from ..args.common_options import DEFAULT_CLUSTER, ClusterOptions, Definitions, Format, Output
from ..render.formatting import format_count
from ..render.output import print_json, print_progress, print_result
from .cluster_acls import Groups, Reads, TopicsExist, Writes, parse_role, scope_of


def doctor(
    role: Annotated[
        str,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="Whose credentials and rights are checked: jobmanager, taskmanager, tasks, submitter, auditor.",
        ),
    ] = "jobmanager",
    reads: Reads = None,
    writes: Writes = None,
    groups: Groups = None,
    topics_exist: TopicsExist = False,
    command_config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The properties file of an administrator, for the printed commands."
        ),
    ] = None,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    definitions: Definitions = None,
) -> int:
    """Check what the processes of a cluster need, and say what mends a fault.

    The command uses the configuration and the credentials of this machine, as a process of the role would. The cluster
    need not run. Exit code 3 if Kafka does not answer, 12 after another fault.
    """
    from ....infra.logging_setup import log_to_stderr
    from ...configuration.options.kafka import KafkaUser
    from ..doctor.doctor import USERS, examine, exit_code
    from ..doctor.report import Subject
    from ..render.acls import SCRIPT, KafkaTool

    wanted = parse_role(role)
    configuration = cluster.locate(definitions)
    configuration = configuration.as_user(USERS.get(wanted, KafkaUser.COMMAND))
    log_to_stderr()
    subject = Subject(
        configuration,
        wanted,
        scope_of(configuration, reads or (), writes or (), groups or (), creates_topics=not topics_exist),
        KafkaTool(SCRIPT, configuration.bootstrap_servers, command_config),
    )
    found = examine(subject, lambda name: print_progress(f"checks {name} ..."))
    if output is Format.JSON:
        print_json(found)
        return exit_code(found)
    for each in found.findings:
        print_result(f"{each.health:8}{each.check}: {each}")
    faults = len(found.failed())
    verdict = format_count(faults, "fault") if faults else "no faults"
    print_progress(f"cluster {found.cluster_id} has {verdict} for {wanted}")
    return exit_code(found)
