"""TLS of the cluster's own servers: BlobServers, and what uses the same options (`blob.server.ssl.*`)."""

from __future__ import annotations

from ...infra.tls import ClientTls, ServerTls, TlsFiles, UnusableTlsFile
from ..configuration import Configuration, ConfigurationError
from ..configuration.options.blob import (
    BLOB_TLS,
    BLOB_TLS_CA,
    BLOB_TLS_CERTIFICATE,
    BLOB_TLS_HOSTNAMES,
    BLOB_TLS_KEY,
    BLOB_TLS_KEY_PASSWORD_FILE,
)


def server_tls(configuration: Configuration) -> ServerTls | None:
    """Returns what secures accepted connections; None without TLS. Raises ConfigurationError."""
    if not configuration.get(BLOB_TLS):
        return None
    certificate = configuration.get(BLOB_TLS_CERTIFICATE)
    if certificate is None:
        raise ConfigurationError(
            [f"{BLOB_TLS.key} is true, but {BLOB_TLS_CERTIFICATE.key} names no certificate for the server"]
        )
    files = TlsFiles(
        certificate=certificate,
        key=configuration.get(BLOB_TLS_KEY),
        key_password_file=configuration.get(BLOB_TLS_KEY_PASSWORD_FILE),
    )
    try:
        return ServerTls(files)
    except UnusableTlsFile as error:
        raise ConfigurationError([f"{BLOB_TLS_CERTIFICATE.key}: {error}"]) from None


def client_tls(configuration: Configuration) -> ClientTls | None:
    """Returns what secures connections to the servers; None without TLS. Raises ConfigurationError."""
    if not configuration.get(BLOB_TLS):
        return None
    files = TlsFiles(ca=configuration.get(BLOB_TLS_CA))
    try:
        return ClientTls(files, checks_host=configuration.get(BLOB_TLS_HOSTNAMES))
    except UnusableTlsFile as error:
        raise ConfigurationError([f"{BLOB_TLS_CA.key}: {error}"]) from None
