"""Login at a Hadoop with Kerberos, and the delegation tokens by which containers speak without a ticket.

The client gets tokens of HDFS and of YARN and submits them with the application. YARN's ResourceManager renews them, up
to their maximum lifetime. With a keytab, which is shipped, the ApplicationMaster logs in itself, and gets new tokens of
HDFS for each container that it starts later.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JJavaError

from ..configuration import Configuration
from ..configuration.options.kerberos import KERBEROS_KEYTAB, KERBEROS_PRINCIPAL, KRB5_CONFIGURATION
from .errors import YarnError
from .jvm_gateway import JvmGateway, describe_java_error

_FILE_SYSTEM_TOKEN: Final = "HDFS_DELEGATION_TOKEN"
_TOKEN_FILE_VARIABLE: Final = "HADOOP_TOKEN_FILE_LOCATION"


class KerberosLogin(msgspec.Struct, frozen=True):
    """Who logs in; empty texts: the user with the ticket of this machine."""

    principal: str = ""
    keytab: str = ""
    krb5_configuration: str = ""

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> KerberosLogin:
        """Reads the options."""
        return cls(
            principal=configuration.get(KERBEROS_PRINCIPAL),
            keytab=configuration.get(KERBEROS_KEYTAB) or "",
            krb5_configuration=configuration.get(KRB5_CONFIGURATION) or "",
        )

    @property
    def java_options(self) -> tuple[str, ...]:
        """The options of a JVM that logs in."""
        return (f"-Djava.security.krb5.conf={self.krb5_configuration}",) if self.krb5_configuration else ()


TICKET: Final = KerberosLogin()
"""Without a keytab."""


def log_in(gateway: JvmGateway, login: KerberosLogin, environment: Mapping[str, str] = os.environ) -> None:
    """Logs the JVM in if its Hadoop requires Kerberos; tokens that YARN has given to this process stay. Raises
    YarnError."""
    security = gateway.jvm.org.apache.hadoop.security
    users = security.UserGroupInformation
    users.setConfiguration(gateway.configuration())
    if not users.isSecurityEnabled():
        return
    tokens = environment.get(_TOKEN_FILE_VARIABLE)
    if not login.keytab:
        if not tokens and not users.getLoginUser().hasKerberosCredentials():
            raise YarnError(
                "hadoop.security.authentication is kerberos, and this user has no ticket: run kinit, or set "
                f"{KERBEROS_KEYTAB.key} and {KERBEROS_PRINCIPAL.key}"
            )
        return
    try:
        users.loginUserFromKeytab(login.principal, login.keytab)
        if tokens:
            file = gateway.jvm.java.io.File(tokens)
            given = security.Credentials.readTokenStorageFile(file, gateway.configuration())
            # Hadoop prefers a token to the login, also one that has expired, and a token gets no new one.
            for alias in list(given.getTokenMap().keySet()):
                if str(given.getToken(alias).getKind().toString()) == _FILE_SYSTEM_TOKEN:
                    given.removeToken(alias)
            users.getLoginUser().addCredentials(given)
    except Py4JJavaError as error:
        raise YarnError(
            f"{login.principal or 'an empty principal'} cannot log in by the keytab {login.keytab}: "
            f"{describe_java_error(error)}; set {KERBEROS_PRINCIPAL.key} and {KERBEROS_KEYTAB.key} to a "
            "principal and a keytab that has it"
        ) from error


def new_file_system_tokens(gateway: JvmGateway, configuration: Any) -> Any:
    """Returns Credentials with new delegation tokens of the default file system, which YARN may renew; none without
    Kerberos."""
    hadoop = gateway.jvm.org.apache.hadoop
    credentials = hadoop.security.Credentials()
    if hadoop.security.UserGroupInformation.isSecurityEnabled():
        renewer = str(hadoop.yarn.client.util.YarnClientUtils.getRmPrincipal(configuration))
        hadoop.fs.FileSystem.get(configuration).addDelegationTokens(renewer, credentials)
    return credentials


def add_resource_manager_token(gateway: JvmGateway, configuration: Any, yarn: Any, credentials: Any) -> None:
    """Adds a delegation token of YARN's ResourceManager, if there is Kerberos."""
    hadoop = gateway.jvm.org.apache.hadoop
    if not hadoop.security.UserGroupInformation.isSecurityEnabled():
        return
    text = hadoop.io.Text
    renewer = text(str(hadoop.yarn.client.util.YarnClientUtils.getRmPrincipal(configuration)))
    service = hadoop.yarn.client.ClientRMProxy.getRMDelegationTokenService(configuration)
    token = hadoop.yarn.util.ConverterUtils.convertFromYarn(yarn.getRMDelegationToken(renewer), service)
    credentials.addToken(service, token)


def serialise(gateway: JvmGateway, credentials: Any) -> Any:
    """Returns Credentials as the ByteBuffer of a ContainerLaunchContext."""
    buffer = gateway.jvm.org.apache.hadoop.io.DataOutputBuffer()
    credentials.writeTokenStorageToStream(buffer)
    return gateway.jvm.java.nio.ByteBuffer.wrap(buffer.getData(), 0, buffer.getLength())
