"""ACLs as commands of Kafka's kafka-acls.sh, and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ...reference.acls import Acl, Operation, PatternType, PrincipalRole

SCRIPT: Final = "kafka-acls.sh"
UNKNOWN_SERVERS: Final = '"$BOOTSTRAP_SERVERS"'
"""The address in a printed command where no cluster is known yet."""


class KafkaTool(msgspec.Struct, frozen=True):
    """How the printed commands call Kafka's tool."""

    command: str = SCRIPT
    bootstrap_servers: str = ""
    command_config: str | None = None
    """A properties file with the credentials of an administrator."""

    def prefix(self) -> str:
        """Returns the beginning of each command."""
        servers = shlex.quote(self.bootstrap_servers) if self.bootstrap_servers else UNKNOWN_SERVERS
        config = (
            "" if self.command_config is None else f" --command-config {shlex.quote(self.command_config)}"
        )
        return f"{self.command} --bootstrap-server {servers}{config}"


def grant_command(acl: Acl, principal: str, tool: KafkaTool, operations: Sequence[Operation] = ()) -> str:
    """Returns the shell command that grants the operations of an ACL, or only these, to a principal."""
    wanted = " ".join(f"--operation {operation}" for operation in operations or acl.operations)
    pattern = (
        "" if acl.pattern_type is PatternType.LITERAL else f" --resource-pattern-type {acl.pattern_type}"
    )
    return (
        f"{tool.prefix()} --add --allow-principal {shlex.quote(principal)} {wanted} "
        f"--{acl.resource_type} {shlex.quote(acl.name)}{pattern}"
    )


def acls_to_data(
    role: PrincipalRole, principal: str, acls: Sequence[Acl], tenant: str = ""
) -> dict[str, Any]:
    """Returns the ACLs of one principal for JSON; `tenant`: that of a submitter, empty for none."""
    return {"role": role, "tenant": tenant, "principal": principal, "acls": msgspec.to_builtins(acls)}
