"""Options of a login by Kerberos at Hadoop."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import pattern
from ....infra.config.options import ConfigOption, Scope
from .kinds import FILE

_SCOPES = (Scope.CLIENT, Scope.JOBMANAGER)
KERBEROS_KEYTAB = ConfigOption[str | None](
    key="security.kerberos.login.keytab",
    type=FILE,
    default=None,
    doc="The keytab by which the client and the ApplicationMaster log in at a Hadoop with Kerberos. It is shipped to "
    "the containers. Empty: the client uses its ticket (kinit), and the application lives as long as its delegation "
    "tokens.",
    scopes=_SCOPES,
    flink="none",
)
KERBEROS_PRINCIPAL = ConfigOption(
    key="security.kerberos.login.principal",
    type=pattern(
        "a principal such as me@EXAMPLE.ORG, or nothing", lambda text: text.isprintable() and " " not in text
    ),
    default="",
    doc="The principal of `security.kerberos.login.keytab`.",
    scopes=_SCOPES,
    flink="none",
)
KRB5_CONFIGURATION = ConfigOption[str | None](
    key="security.kerberos.krb5-conf.path",
    type=FILE,
    default=None,
    doc="A krb5.conf for the client, which is shipped to the ApplicationMaster. Empty: that of each machine.",
    scopes=_SCOPES,
    flink="none",
)

OPTIONS: tuple[ConfigOption[Any], ...] = (KERBEROS_KEYTAB, KERBEROS_PRINCIPAL, KRB5_CONFIGURATION)
