"""Finds out whether a Kafka can be reached and accepts a principal; if not, why, in one line.

librdkafka retries what no retry helps, and has one error for every certificate that it does not accept. So this makes
the connection's steps itself: TCP, then the TLS handshake with Python's `ssl`, then a client's login.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from .kafka_connection import KafkaConnection, UnusableProperties
from .kafka_tls import tls_context
from .redaction import HIDDEN

_CONNECT_S: Final = 3.0
_LOOK_S: Final = 0.02
_TOKEN_FAILURE: Final = "Failed to acquire SASL OAUTHBEARER token"
"""How librdkafka begins the error of a client that has got no token."""
_MOST_BACKOFF_MS: Final = 200
"""The client connects so often that it has those errors in time."""
_MOST_ERRORS: Final = 12
"""So many errors of a client with TLS: the broker does not take it as it is."""


class KafkaRefusal(Exception):
    """Kafka cannot be used with this configuration, and no retry helps: one line, with what to do."""


class KafkaUnreachable(Exception):
    """No broker answers, which may pass: one line."""


def check_connection(kafka: KafkaConnection, timeout_s: float = 10.0) -> None:
    """Returns when a broker has accepted the principal. Raises KafkaRefusal, KafkaUnreachable."""
    try:
        configuration = kafka.to_librdkafka()
        context = tls_context(kafka) if kafka.is_encrypted else None
    except UnusableProperties as error:
        raise KafkaRefusal(str(error)) from None
    deadline = time.monotonic() + timeout_s
    _connect_any(kafka, context)
    errors: list[KafkaError] = []
    try:
        own: dict[str, Any] = {
            "log_level": 0,
            "error_cb": errors.append,
            "reconnect.backoff.max.ms": _MOST_BACKOFF_MS,
        }
        client = AdminClient({**configuration, **own})
    except KafkaException as error:
        raise KafkaRefusal(f"the properties of Kafka at {kafka} are refused: {error.args[0].str()}") from None
    answer = client.describe_cluster(request_timeout=timeout_s)
    while not answer.done():
        client.poll(_LOOK_S)
        for found in errors:
            if _TOKEN_FAILURE in found.str():
                raise _missing_token(found, kafka)
            if (line := _explain(found, kafka)) is not None:
                raise KafkaRefusal(line)
        if errors and (line := _explain_silence(kafka, len(errors))) is not None:
            raise KafkaRefusal(line)
        if time.monotonic() > deadline:
            break
    try:
        answer.result(0.0)
    except (KafkaException, TimeoutError) as error:
        why = error.args[0].str() if isinstance(error, KafkaException) else "no answer in time"
        raise KafkaUnreachable(f"Kafka at {kafka} does not answer: {why}") from None


def _addresses(kafka: KafkaConnection) -> list[tuple[str, int]]:
    pairs = (server.strip().rpartition(":") for server in kafka.bootstrap_servers.split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]


def _connect_any(kafka: KafkaConnection, context: ssl.SSLContext | None) -> None:
    """Connects to one of the servers, with TLS if there is a context."""
    silent: list[str] = []
    for host, port in _addresses(kafka):
        try:
            with socket.create_connection((host, port), _CONNECT_S) as plain:
                if context is None:
                    return
                with context.wrap_socket(plain, server_hostname=host):
                    return
        except ssl.SSLError as error:
            raise KafkaRefusal(_explain_tls(error, host, port, kafka)) from None
        except ConnectionError as error:
            silent.append(_explain_reset(error, host, port))
        except socket.gaierror as error:
            silent.append(f"the host {host} is not known ({error.strerror}): is its name right?")
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            silent.append(f"nobody answers at {host}:{port} ({reason}): is it up, is the port right?")
    raise KafkaUnreachable(f"there is no Kafka at {kafka.bootstrap_servers}: {'; '.join(silent)}")


def _explain_reset(error: ConnectionError, host: str, port: int) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"nobody answers at {host}:{port} ({error.strerror}): is it up, is the port right?"
    return f"{host}:{port} closes the connection ({error.strerror}): is it up, is security.protocol right?"


def _explain_tls(error: ssl.SSLError, host: str, port: int, kafka: KafkaConnection) -> str:
    where = f"{host}:{port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
        ca = kafka.properties.get("ssl.ca.location")
        if "mismatch" in why or "not valid for" in why:
            what = "name the host in bootstrap.servers as in the certificate, or ask for one with this name"
        elif "expired" in why or "not yet valid" in why:
            what = "let the broker have a new one, and check the clock of this machine"
        elif ca is None:
            what = "ssl.ca.location has to name the PEM file of the authority that issued it"
        else:
            what = f"is the authority that issued it in {ca} (ssl.ca.location)?"
        return f"the certificate of Kafka at {where} is not accepted: {why}: {what}"
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE") or isinstance(error, ssl.SSLEOFError):
        without = (
            "SASL_PLAINTEXT" if kafka.properties["security.protocol"].upper() == "SASL_SSL" else "PLAINTEXT"
        )
        return (
            f"Kafka at {where} does not speak TLS: is the port right? Without TLS security.protocol is {without}, "
            "and everybody on the network can read the data"
        )
    why = error.reason or str(error)
    return f"Kafka at {where} ends the TLS handshake: {why}: does it want a certificate of the client?"


def _explain(error: KafkaError, kafka: KafkaConnection) -> str | None:
    """Returns one line about an error that no retry helps, else None."""
    text = error.str().partition(": ")[2] or error.str()
    mechanism = kafka.properties.get("sasl.mechanism", "GSSAPI")
    if "mechanism" in text and "nsupported" in text:
        offered = text.partition("broker's supported mechanisms:")[2].partition("(")[0].strip()
        more = f": set sasl.mechanism to one of {offered}" if offered else ": set another sasl.mechanism"
        return f"Kafka at {kafka.bootstrap_servers} does not take the SASL mechanism {mechanism}{more}"
    if error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
        if mechanism == "OAUTHBEARER":
            return (
                f"Kafka at {kafka.bootstrap_servers} does not accept the login of {kafka.principal}: {text}"
            )
        file = kafka.properties.get("sasl.password-file")
        return (
            f"Kafka at {kafka.bootstrap_servers} refuses {kafka.principal} with {mechanism}: is the password in {file} "
            f"(sasl.password-file) right, and has the user one for {mechanism}?"
        )
    if error.code() == KafkaError._SSL:
        return f"the TLS connection to Kafka at {kafka.bootstrap_servers} fails: {text}"
    return None


def _missing_token(error: KafkaError, kafka: KafkaConnection) -> KafkaRefusal | KafkaUnreachable:
    """Returns the error of a client that has no token. A token server that refuses a client answers with an `error`
    (RFC 6749, section 5.2)."""
    name = "sasl.oauthbearer.client.secret"
    # A server may repeat what it was told.
    why = error.str().partition(": ")[2].replace(str(kafka.to_librdkafka().get(name)), HIDDEN)
    server = f"the token server {kafka.properties.get('sasl.oauthbearer.token.endpoint.url')}"
    if '"error"' not in why:
        return KafkaUnreachable(f"{server} gives {kafka.principal} no token for Kafka: {why}: is it up?")
    file = kafka.properties.get(f"{name}-file")
    return KafkaRefusal(
        f"{server} does not give {kafka.principal} a token: is the secret in {file} ({name}-file) right? It answers"
        f" {' '.join(why.split())}"
    )


def _explain_silence(kafka: KafkaConnection, errors: int) -> str | None:
    """Returns one line if the port is open, but for another protocol. `errors`: how often the client has failed."""
    protocol = kafka.properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol == "SSL" and errors > _MOST_ERRORS:
        return (
            f"Kafka at {kafka.bootstrap_servers} ends the TLS connection: it wants a login (security.protocol "
            "SASL_SSL, sasl.mechanism), or a certificate (ssl.certificate.location)"
        )
    if kafka.is_encrypted:
        return None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for host, port in _addresses(kafka):
        try:
            with socket.create_connection((host, port), _CONNECT_S) as plain:
                with context.wrap_socket(plain, server_hostname=host):
                    pass
        except OSError:
            continue
        return (
            f"Kafka at {host}:{port} takes only TLS, but security.protocol is {protocol}: set it to SASL_SSL or SSL, "
            "and ssl.ca.location"
        )
    return None
