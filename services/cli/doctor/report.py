"""The result of an examination: one line for each thing that was checked, and what mends it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from ...configuration import Configuration
from ...reference.acls import AclScope, PrincipalRole
from ..render.acls import KafkaTool


class Health(StrEnum):
    """The verdict on one thing."""

    OK = "ok"
    WARNING = "warning"
    """The cluster works, but less safely."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """It could not be checked, or does not apply."""


class Finding(msgspec.Struct, frozen=True):
    """One line of the report."""

    check: str
    health: Health
    message: str
    remedy: str = ""
    """The command or change that mends it."""

    def __str__(self) -> str:
        return f"{self.message}: {self.remedy}" if self.remedy else self.message


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `cluster doctor`."""

    cluster_id: str
    role: PrincipalRole
    findings: list[Finding]

    def failed(self, check: str | None = None) -> list[Finding]:
        """Returns what failed, of one check or of all."""
        return [
            each for each in self.findings if each.health is Health.FAILED and check in (None, each.check)
        ]


class Subject(msgspec.Struct, frozen=True):
    """What is examined: a role, its configuration with its credentials, and the scope of its ACLs."""

    configuration: Configuration
    role: PrincipalRole
    scope: AclScope
    tool: KafkaTool


class Report:
    """Collects the findings of one check."""

    def __init__(self, check: str) -> None:
        self.findings: list[Finding] = []
        self._check = check

    def ok(self, message: str) -> None:
        """Adds a thing that is as it should be."""
        self._add(Health.OK, message)

    def warn(self, message: str, remedy: str = "") -> None:
        """Adds a risk."""
        self._add(Health.WARNING, message, remedy)

    def fail(self, message: str, remedy: str = "") -> None:
        """Adds a fault."""
        self._add(Health.FAILED, message, remedy)

    def skip(self, message: str) -> None:
        """Adds a thing that was not checked."""
        self._add(Health.SKIPPED, message)

    def _add(self, health: Health, message: str, remedy: str = "") -> None:
        # Errors of libraries may have several lines.
        self.findings.append(Finding(self._check, health, " ".join(message.split()), remedy))


class Check(msgspec.Struct, frozen=True):
    """One check. It is skipped if a check that it needs has failed, and left out for other roles."""

    name: str
    run: Callable[[Subject, Report], None]
    """Adds findings. What it raises is a fault, if the command line knows the exception as an expected one."""
    needs: tuple[str, ...] = ()
    roles: frozenset[PrincipalRole] = frozenset(PrincipalRole)
