"""A certificate authority for tests: what it issues is a PEM file with a key in PKCS#8 and the certificate."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY: Final = datetime.timedelta(days=1)


class CertificateAuthority:
    """Writes its own certificate to `ca`, and what it issues beside it."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = self._builder(self._name, self._key.public_key(), _DAY)
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.ca = directory / f"{name}.pem"
        """The PEM file with the authority's certificate."""
        self.ca.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = ("127.0.0.1",),
        *,
        valid_for: datetime.timedelta = _DAY,
        password: str | None = None,
    ) -> Path:
        """Returns a new PEM file; `name` is the common name. A negative `valid_for`: it has expired.

        `password` encrypts the key.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key.public_key(), valid_for)
        builder = builder.add_extension(
            x509.SubjectAlternativeName(list(map(_general_name, hosts))), critical=False
        )
        certificate = builder.sign(self._key, hashes.SHA256())
        how: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            how = serialization.BestAvailableEncryption(password.encode())
        path = self._directory / f"{name}-{certificate.serial_number:x}.pem"
        path.touch(mode=0o600)
        path.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return path

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, valid_for: datetime.timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, now + valid_for) - _DAY)
            .not_valid_after(now + valid_for)
        )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
