"""YARN and HDFS with Kerberos, in one JVM with Hadoop's MiniKdc, for tests.

All servers are one principal, because a JVM has one login. A keytab has the user of this process, and
`krb5_configuration` the place of the MiniKdc: a client needs both.
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from .versions import MINI_KDC_JARS
from .yarn import EmbeddedYarn

_SERVERS: Final = "hadoop/localhost"
_WEB: Final = "HTTP/localhost"
_PRINCIPALS: Final = (
    "dfs.namenode.kerberos.principal",
    "dfs.datanode.kerberos.principal",
    "yarn.resourcemanager.principal",
    "yarn.nodemanager.principal",
)
_KEYTABS: Final = (
    "dfs.namenode.keytab.file",
    "dfs.datanode.keytab.file",
    "yarn.resourcemanager.keytab",
    "yarn.nodemanager.keytab",
)
_SETTINGS: Final[Mapping[str, str]] = {
    "hadoop.security.authentication": "kerberos",
    "hadoop.security.authorization": "true",
    "dfs.block.access.token.enable": "true",
    # A DataNode with Kerberos wants ports below 1024.
    "ignore.secure.ports.for.testing": "true",
    # A NodeManager registers as its principal, and not by a call within the JVM.
    "yarn.minicluster.use-rpc": "true",
}


class SecuredYarn(EmbeddedYarn):
    """An EmbeddedYarn with Kerberos."""

    jar_sets = (*EmbeddedYarn.jar_sets, MINI_KDC_JARS)
    jar_patterns = (*EmbeddedYarn.jar_patterns, "commons-io-*", "commons-lang3-*")
    site_keys = {
        "core-site.xml": ("hadoop.security.authentication", "hadoop.security.authorization"),
        "hdfs-site.xml": _PRINCIPALS[:2],
        "yarn-site.xml": _PRINCIPALS[2:],
    }

    @property
    def keytab(self) -> Path:
        """The keytab of the user."""
        return self.data_dir / "kdc" / "user.keytab"

    @property
    def principal(self) -> str:
        """The principal of the user, without its realm."""
        return getpass.getuser()

    @property
    def krb5_configuration(self) -> Path:
        """The krb5.conf of a client."""
        return self.data_dir / "kdc" / "krb5.conf"

    def _prepare(self) -> dict[str, str]:
        folder = self.data_dir / "kdc"
        folder.mkdir(exist_ok=True)
        kinds = self.jvm.org.apache.hadoop.minikdc.MiniKdc
        kdc = kinds(kinds.createConf(), self.jvm.java.io.File(str(folder)))
        kdc.start()
        self.krb5_configuration.write_bytes(Path(kdc.getKrb5conf().toString()).read_bytes())
        servers = folder / "servers.keytab"
        self._add_principals(kdc, servers, _SERVERS, _WEB)
        self._add_principals(kdc, self.keytab, self.principal)
        realm = kdc.getRealm()
        return {
            **_SETTINGS,
            **dict.fromkeys(_PRINCIPALS, f"{_SERVERS}@{realm}"),
            **dict.fromkeys(_KEYTABS, str(servers)),
            "dfs.web.authentication.kerberos.principal": f"{_WEB}@{realm}",
            "dfs.web.authentication.kerberos.keytab": str(servers),
        }

    def _complete(self) -> None:
        """The superuser of HDFS is the servers' principal, so the user gets a home."""
        files = self.mini_hdfs.getFileSystem()
        home = self.jvm.org.apache.hadoop.fs.Path(f"/user/{self.principal}")
        files.mkdirs(home)
        files.setOwner(home, self.principal, self.principal)

    def _add_principals(self, kdc: Any, keytab: Path, *names: str) -> None:
        kdc.createPrincipal(self.jvm.java.io.File(str(keytab)), self._array_of_strings(names))
