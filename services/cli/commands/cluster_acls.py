"""`tailrace cluster acls`: prints the Kafka ACLs of the principals of a cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ..args.common_options import DEFAULT_CLUSTER, ClusterOptions, Definitions, Format, Output
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_json, print_result

if TYPE_CHECKING:
    from ...configuration import Configuration
    from ...reference.acls import AclScope, PrincipalRole

_PRINCIPAL = re.compile(r"[A-Za-z]+:\S.*")

Reads = Annotated[
    list[str] | None,
    typer.Option(
        "--read",
        metavar="TOPIC",
        help="A topic that Kafka sources of jobs read; TOPIC* is a prefix. May be given several times.",
    ),
]
Writes = Annotated[
    list[str] | None,
    typer.Option(
        "--write",
        metavar="TOPIC",
        help="A topic that Kafka sinks of jobs write; TOPIC* is a prefix. May be given several times.",
    ),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="GROUP",
        help="The group_id of a Kafka source; GROUP* is a prefix. May be given several times.",
    ),
]
TopicsExist = Annotated[
    bool,
    typer.Option(
        "--topics-exist",
        help="Leave out the right to create the cluster's own topics: somebody else creates them first.",
    ),
]


def acls(
    principals: Annotated[
        list[str],
        typer.Option(
            "--principal",
            metavar="ROLE=PRINCIPAL",
            help="The principal of a role, such as jobmanager=User:masters. Roles: jobmanager, taskmanager, tasks, "
            "submitter, submitter@TENANT, auditor. May be given several times; a principal may have several roles.",
        ),
    ],
    reads: Reads = None,
    writes: Writes = None,
    groups: Groups = None,
    topics_exist: TopicsExist = False,
    tool: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="The command that is printed: kafka-acls.sh, or 'tailrace kafka-tools kafka-acls'.",
        ),
    ] = "kafka-acls.sh",
    command_config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The properties file of an administrator, for the printed commands."
        ),
    ] = None,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    definitions: Definitions = None,
) -> None:
    """Print the Kafka ACLs of the cluster's principals, as kafka-acls commands.

    The command connects to nothing. Its output is a shell script: read it, then run it as an administrator of Kafka.
    """
    from msgspec.structs import replace

    from ...reference.acls import acls_of
    from ..render.acls import KafkaTool, acls_to_data, grant_command

    configuration = cluster.configuration(definitions)
    wanted = [parse_principal(text) for text in principals]
    scope = scope_of(configuration, reads or (), writes or (), groups or (), creates_topics=not topics_exist)
    found = [(to, acls_of(to.role, replace(scope, tenant=to.tenant))) for to in wanted]
    if output is Format.JSON:
        own = [acls_to_data(to.role, to.principal, needed, to.tenant) for to, needed in found]
        print_json({"cluster_id": scope.cluster, "principals": own})
        return
    printed = KafkaTool(tool, configuration.bootstrap_servers, command_config)
    for to, needed in found:
        tenant = f" of tenant {to.tenant}" if to.tenant else ""
        print_result(f"# {to.role}{tenant}: {to.principal}")
        for acl in needed:
            print_result(f"{grant_command(acl, to.principal, printed)}  # {acl.reason}")


class Grant(NamedTuple):
    """A principal that gets the rights of a role; `tenant`: that of a submitter, empty for none."""

    role: PrincipalRole
    tenant: str
    principal: str


def parse_principal(text: str) -> Grant:
    """Returns what ROLE=TYPE:NAME or submitter@TENANT=TYPE:NAME says. Raises CommandFailure."""
    from ...configuration.options.tenants import is_tenant
    from ...reference.acls import PrincipalRole

    name, _, principal = text.partition("=")
    kind, at, tenant = name.partition("@")
    role = parse_role(kind)
    if at and (role is not PrincipalRole.SUBMITTER or not is_tenant(tenant)):
        raise CommandFailure(
            ExitCode.USAGE,
            f"--principal {text}: only a submitter belongs to a tenant: write submitter@TENANT=TYPE:NAME, the tenant "
            "with 1 to 24 lower case letters, digits and '-'",
        )
    if not _PRINCIPAL.fullmatch(principal):
        raise CommandFailure(
            ExitCode.USAGE,
            f"--principal {text}: {principal!r} is no principal of Kafka: write TYPE:NAME, such as {name}=User:x",
        )
    return Grant(role, tenant, principal)


def parse_role(name: str) -> PrincipalRole:
    """Returns the role of that name. Raises CommandFailure."""
    from ...reference.acls import PrincipalRole

    if name not in tuple(PrincipalRole):
        roles = ", ".join(PrincipalRole)
        raise CommandFailure(ExitCode.USAGE, f"there is no role {name!r}: use one of {roles}")
    return PrincipalRole(name)


def scope_of(
    configuration: Configuration,
    reads: Sequence[str],
    writes: Sequence[str],
    groups: Sequence[str],
    *,
    creates_topics: bool,
) -> AclScope:
    """Returns what the ACLs of a cluster with this configuration depend on."""
    from ...configuration.options.retention import LOG_RETENTION_BYTES, LOG_RETENTION_TIME
    from ...configuration.options.tenants import TENANT, TENANTS
    from ...reference.acls import AclScope

    limits = (configuration.get(LOG_RETENTION_TIME), configuration.get(LOG_RETENTION_BYTES))
    return AclScope(
        configuration.cluster_id,
        tuple(reads),
        tuple(writes),
        tuple(groups),
        creates_topics=creates_topics,
        tenants=configuration.get(TENANTS),
        tenant=configuration.get(TENANT),
        deletes_events=any(limit is not None for limit in limits),
    )
