"""TLS as a KafkaConnection describes it, for connections that no Kafka client makes."""

from __future__ import annotations

import ssl

from . import tls
from .kafka_connection import KafkaConnection, UnusableProperties


def tls_context(kafka: KafkaConnection) -> ssl.SSLContext:
    """Returns the TLS context of a connection, for what is not made with librdkafka. Raises UnusableProperties."""
    properties = kafka.properties
    try:
        context = tls.client_context(
            properties.get("ssl.ca.location"),
            certificate=properties.get("ssl.certificate.location"),
            key=properties.get("ssl.key.location"),
            key_password_file=properties.get("ssl.key.password-file"),
            checks_host=properties.get("ssl.endpoint.identification.algorithm", "https") != "none",
        )
    except tls.UnusableTlsFile as error:
        raise UnusableProperties(str(error)) from None
    if properties.get("enable.ssl.certificate.verification") == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
