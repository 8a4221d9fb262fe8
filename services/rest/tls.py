"""TLS of REST servers (`security.ssl.rest.*`), and the subjects of their clients' certificates."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

from ...infra.tls import ServerTls, TlsFiles, UnusableTlsFile
from ..configuration import Configuration, ConfigurationError
from ..configuration.options.rest import (
    REST_TLS,
    REST_TLS_AUTHENTICATION,
    REST_TLS_CA,
    REST_TLS_CERTIFICATE,
    REST_TLS_KEY,
    REST_TLS_KEY_PASSWORD_FILE,
)


def create_tls(configuration: Configuration) -> ServerTls | None:
    """Returns what secures connections; None without TLS. Raises ConfigurationError."""
    if not configuration.get(REST_TLS):
        if configuration.get(REST_TLS_AUTHENTICATION):
            raise ConfigurationError([f"{REST_TLS_AUTHENTICATION.key} is true, but {REST_TLS.key} is not"])
        return None
    certificate = configuration.get(REST_TLS_CERTIFICATE)
    if certificate is None:
        raise ConfigurationError(
            [f"{REST_TLS.key} is true, but {REST_TLS_CERTIFICATE.key} names no certificate for the server"]
        )
    ca = configuration.get(REST_TLS_CA)
    if configuration.get(REST_TLS_AUTHENTICATION) and ca is None:
        raise ConfigurationError(
            [f"{REST_TLS_AUTHENTICATION.key} is true, but {REST_TLS_CA.key} names no authorities of clients"]
        )
    files = TlsFiles(
        ca=ca if configuration.get(REST_TLS_AUTHENTICATION) else None,
        certificate=certificate,
        key=configuration.get(REST_TLS_KEY),
        key_password_file=configuration.get(REST_TLS_KEY_PASSWORD_FILE),
    )
    try:
        tls = ServerTls(files)
        _check_validity(certificate)
    except UnusableTlsFile as error:
        raise ConfigurationError([f"{REST_TLS_CERTIFICATE.key}: {error}"]) from None
    return tls


def find_subject(connection: ssl.SSLObject | None) -> str | None:
    """Returns the subject of the client's verified certificate, as in RFC 4514: `CN=gateway,O=Example`; None without
    one."""
    certificate = None if connection is None else connection.getpeercert(binary_form=True)
    if certificate is None:
        return None
    from cryptography import x509

    return x509.load_der_x509_certificate(certificate).subject.rfc4514_string()


def _check_validity(path: str) -> None:
    """Raises UnusableTlsFile if the certificate has expired, or is not valid yet: no client would accept it."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificates(Path(path).read_bytes())[0]
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    now = datetime.datetime.now(datetime.UTC)
    if not first <= now <= last:
        raise UnusableTlsFile(
            f"the certificate in {path} is valid from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
        )
