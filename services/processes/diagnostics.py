"""Assembles the diagnostics server of a jobmanager or a TaskExecutor.

Other machines reach it only with the secret of the cluster. If Kafka is secured, it needs the secret in any case:
otherwise it would show other users of the machine what Kafka's ACLs hide.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...infra.logging_setup import logger
from ...infra.server_socket import is_loopback
from ..blobs.shared_secret_auth import SharedSecret
from ..blobs.tls import server_tls
from ..configuration import Configuration, ConfigurationError
from ..configuration.options.blob import BLOB_SECRET_FILE
from ..configuration.options.diagnostics import DIAGNOSTICS_HOST, DIAGNOSTICS_PORT
from ..diagnostics.logs import LogFiles
from ..diagnostics.metrics import SAMPLES, serve_samples
from ..diagnostics.server import TOKEN_USE, DiagnosticsServer, Handler
from ..diagnostics.threads import THREADS, serve_threads
from ..metrics.samples import Collect
from .process_lifecycle import process_address

_log = logger(__name__)


def serve_diagnostics(
    configuration: Configuration, collect: Collect, others: Mapping[str, Handler] | None = None
) -> DiagnosticsServer | None:
    """Serves until it is closed; None if Kafka is secured and there is no secret. `collect` returns the metrics,
    `others` are more paths.

    Raises ConfigurationError if the address is not available, or must not be served.
    """
    host, ports = configuration.get(DIAGNOSTICS_HOST), configuration.get(DIAGNOSTICS_PORT)
    secret = SharedSecret.from_configuration(configuration)
    if secret is None:
        if not is_loopback(host):
            raise ConfigurationError(
                [f"{DIAGNOSTICS_HOST.key} is {host}, which other machines reach: set {BLOB_SECRET_FILE.key}"]
            )
        if configuration.kafka.is_secured:
            _log.warning(
                "REST servers get no metrics and logs of this process: Kafka is secured, so they need a secret",
                option=BLOB_SECRET_FILE.key,
            )
            return None
    try:
        return DiagnosticsServer(
            {
                SAMPLES: serve_samples(collect),
                THREADS: serve_threads(),
                **LogFiles(configuration.home / "log").paths(),
                **(others or {}),
            },
            host=host,
            ports=ports,
            process=process_address(),
            token=None if secret is None else secret.token(TOKEN_USE),
            tls=server_tls(configuration),
        )
    except OSError as error:
        where = f"{DIAGNOSTICS_PORT.key}: no diagnostics can be served on {host}:{ports}: {error}"
        raise ConfigurationError([f"{where}; set {DIAGNOSTICS_HOST.key} too"]) from error
