"""TLS for the servers and clients of tailrace's own protocols, from PEM files.

`ServerTls.wrap` and `ClientTls.wrap` secure a connected socket. They read the files again when these have changed, so a
certificate can be replaced while the process runs: the next connection has it. `ServerTls.context` does the same for
servers that make their connections themselves, with the event loop of asyncio.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from .file_versions import FileVersions, versions_of
from .logging_setup import logger

_log = logger(__name__)

_HANDSHAKE_S: Final = 10.0


class UnusableTlsFile(ValueError):
    """A certificate, key or password file cannot be read or does not fit: one line."""


class TlsFiles(msgspec.Struct, frozen=True):
    """The PEM files of one side. `ca`: whom it trusts; None: the system's authorities, and for a server: no client
    needs a certificate."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password_file: str | None = None

    def version(self) -> FileVersions:
        """Returns a value that changes when one of the files changes."""
        named = (self.ca, self.certificate, self.key, self.key_password_file)
        return versions_of(Path(name) for name in named if name is not None)


class _Contexts:
    """The context of the present files; thread-safe."""

    def __init__(self, files: TlsFiles, create: Callable[[], ssl.SSLContext]) -> None:
        self._files = files
        self._create = create
        self._lock = threading.Lock()
        self._version = files.version()
        self._version_warned_of: FileVersions = self._version
        self._context = create()

    def current(self) -> ssl.SSLContext:
        """Raises UnusableTlsFile if new files cannot be used."""
        with self._lock:
            version = self._files.version()
            if version != self._version:
                self._context, self._version = self._create(), version
            return self._context

    def last_usable(self) -> ssl.SSLContext:
        """Returns the context of the last files that can be used, and warns once of later ones."""
        try:
            return self.current()
        except UnusableTlsFile as error:
            with self._lock:
                if self._version_warned_of != (version := self._files.version()):
                    self._version_warned_of = version
                    _log.warning("still uses the earlier certificate", reason=str(error))
                return self._context


class _PresentContext(ssl.SSLContext):
    """A context that makes each connection with that of the present files: asyncio takes one for all connections."""

    _contexts: _Contexts

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return self._contexts.last_usable().wrap_bio(*args, **kwargs)


class ServerTls:
    """Secures the connections that a server accepts. Raises UnusableTlsFile."""

    def __init__(self, files: TlsFiles) -> None:
        if files.certificate is None:
            raise UnusableTlsFile("a server needs a certificate")
        certificate = files.certificate
        self._contexts = _Contexts(
            files, lambda: server_context(certificate, files.key, files.key_password_file, files.ca)
        )

    def wrap(self, accepted: socket.socket) -> ssl.SSLSocket:
        """Returns the secured socket. The first read or write makes the handshake, within the socket's timeout, so that
        a slow client does not delay others. Raises OSError, UnusableTlsFile; the socket is closed then."""
        with _closed_on_error(accepted):
            return self._contexts.current().wrap_socket(
                accepted, server_side=True, do_handshake_on_connect=False
            )

    def context(self) -> ssl.SSLContext:
        """Returns the context for a server of asyncio. While new files can't be used, connections have the earlier
        ones."""
        context = _PresentContext(ssl.PROTOCOL_TLS_SERVER)
        context._contexts = self._contexts
        return context


class ClientTls:
    """Secures connections to servers, whose certificates have to name the host. Raises UnusableTlsFile."""

    def __init__(self, files: TlsFiles, *, checks_host: bool = True) -> None:
        self._contexts = _Contexts(
            files,
            lambda: client_context(
                files.ca,
                certificate=files.certificate,
                key=files.key,
                key_password_file=files.key_password_file,
                checks_host=checks_host,
            ),
        )

    def wrap(self, connected: socket.socket, host: str, timeout_s: float = _HANDSHAKE_S) -> ssl.SSLSocket:
        """Returns the secured socket after the handshake with `host`. Raises OSError (ssl.SSLError), UnusableTlsFile;
        the socket is closed then."""
        before = connected.gettimeout()
        with _closed_on_error(connected):
            connected.settimeout(timeout_s)
            secured = self._contexts.current().wrap_socket(connected, server_hostname=host)
            secured.settimeout(before)
            return secured


@contextlib.contextmanager
def _closed_on_error(plain: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        plain.close()
        raise


def client_context(
    ca: str | None,
    *,
    certificate: str | None = None,
    key: str | None = None,
    key_password_file: str | None = None,
    checks_host: bool = True,
) -> ssl.SSLContext:
    """Returns the context of a client, which trusts `ca`, or the system's authorities if it is None. Raises
    UnusableTlsFile."""
    context = ssl.create_default_context()
    if ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _trust(context, ca)
    context.check_hostname = checks_host
    if certificate is not None:
        _load_certificate(context, certificate, key, key_password_file)
    return context


def server_context(
    certificate: str, key: str | None, key_password_file: str | None = None, client_ca: str | None = None
) -> ssl.SSLContext:
    """Returns the context of a server; with `client_ca` a client needs a certificate of it. Raises UnusableTlsFile."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_certificate(context, certificate, key, key_password_file)
    if client_ca is not None:
        _trust(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _trust(context: ssl.SSLContext, ca: str) -> None:
    try:
        context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise UnusableTlsFile(
            f"{ca} has no certificate authorities that can be read: {_reason(error)}"
        ) from None


def _load_certificate(
    context: ssl.SSLContext, certificate: str, key: str | None, key_password_file: str | None
) -> None:
    password = "" if key_password_file is None else _first_line(key_password_file)
    try:
        # With an empty password, an encrypted key is refused, and not asked for at the terminal.
        context.load_cert_chain(certificate, key, password=password)
    except (OSError, ssl.SSLError, ValueError) as error:
        files = certificate if key in (None, certificate) else f"{certificate} and {key}"
        raise UnusableTlsFile(
            f"the certificate and key in {files} can't be used: {_certificate_fault(error, key_password_file)}"
        ) from None


def _certificate_fault(error: Exception, key_password_file: str | None) -> str:
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return "the key is not that of the certificate"
    is_encrypted = key_password_file is None and not isinstance(error, FileNotFoundError)
    return f"{_reason(error)}{' (is the key encrypted?)' if is_encrypted else ''}"


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").splitlines()[0]
    except (OSError, UnicodeDecodeError, IndexError) as error:
        raise UnusableTlsFile(f"{path} can't be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
