"""Sends spans to a collector by OTLP, https://opentelemetry.io/docs/specs/otlp/: in protobuf over HTTP, or by gRPC.

An error that may pass is followed by another attempt, as OTLP says. Another error is final for these spans. gRPC needs
the package grpcio, which is loaded only then.
"""

from __future__ import annotations

import gzip
import http.client
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ...infra.open_telemetry import OtlpProtocol, is_collector_url
from ...infra.redaction import redacted
from ...infra.redirects import NoRedirects
from .otlp import OtlpPackageMissing, create_request, encode_protobuf
from .span import Span
from .span_builder import SCOPE_VERSION

TRACES_PATH: Final = "/v1/traces"
"""OTLP's path for traces below a collector's address."""
HEADERS_VARIABLE: Final = "OTEL_EXPORTER_OTLP_HEADERS"
"""OpenTelemetry's variable with headers for the collector, as key=value,... ; values are percent-encoded."""
_RETRIED: Final = frozenset({429, 502, 503, 504})
"""The statuses of HTTP after which OTLP allows another attempt."""
_RETRIED_CODES: Final = frozenset(
    {"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"}
)
"""The same of gRPC."""
_MOST_ATTEMPTS: Final = 5
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0
_LONGEST_ANSWER: Final = 1 << 16
_LONGEST_REASON: Final = 200
_TIMEOUT_S: Final = 10.0
_USER_AGENT: Final = f"tailrace/{SCOPE_VERSION}"

Pause = Callable[[float], object]


class OtlpUnavailable(Exception):
    """A collector does not take spans; the message says where, why and what to do."""

    def __init__(self, message: str, *, is_final: bool) -> None:
        self.is_final = is_final
        """Whether it will not take these spans later either."""
        super().__init__(message)


class _FailedAttempt(Exception):
    """`wait_s`: how long the collector wants the sender to wait; None: it does not say."""

    def __init__(self, why: str, *, is_final: bool, wait_s: float | None = None) -> None:
        self.why = why
        self.is_final = is_final
        self.wait_s = wait_s
        super().__init__(why)


class OtlpExporter(ABC):
    """Sends spans to one collector. Not thread-safe."""

    url: str
    """Where the spans go."""
    _hint: str
    """What to look for if the collector does not take them."""

    def __init__(self, pause: Pause) -> None:
        """`pause` waits between attempts."""
        self._pause = pause

    def export(self, spans: Sequence[Span]) -> int:
        """Sends spans, again after an error that may pass. Returns how many of them the collector has rejected. Raises
        OtlpUnavailable."""
        message = self._encode(spans)
        pause_s = _FIRST_PAUSE_S
        for attempt in range(1, _MOST_ATTEMPTS + 1):
            try:
                return self._send(message)
            except _FailedAttempt as failed:
                if failed.is_final or attempt == _MOST_ATTEMPTS:
                    text = f"{self.url} does not take traces: {' '.join(failed.why.split())}; {self._hint}"
                    raise OtlpUnavailable(redacted(text), is_final=failed.is_final) from None
                self._pause(min(failed.wait_s or pause_s, _LONGEST_PAUSE_S))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Closes the connection."""
        return

    @abstractmethod
    def _encode(self, spans: Sequence[Span]) -> Any:
        """Returns what `_send` sends."""

    @abstractmethod
    def _send(self, message: Any) -> int:
        """Returns the number of rejected spans. Raises _FailedAttempt."""


class OtlpHttpExporter(OtlpExporter):
    """Sends spans in protobuf over HTTP."""

    _hint = "is it the OTLP/HTTP receiver of a collector, usually at port 4318?"

    def __init__(
        self, endpoint: str, cluster: str, *, timeout_s: float = _TIMEOUT_S, pause: Pause = time.sleep
    ) -> None:
        """`endpoint`: the URL of a collector; without a path, /v1/traces is added."""
        super().__init__(pause)
        self.url = to_traces_url(endpoint)
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            "User-Agent": _USER_AGENT,
            **_read_headers(os.environ.get(HEADERS_VARIABLE, "")),
        }
        # A redirected POST would become a GET without its spans.
        self._opener = urllib.request.build_opener(NoRedirects)
        # Fail before there is anything to send.
        self._encode(())

    def _encode(self, spans: Sequence[Span]) -> bytes:
        return gzip.compress(encode_protobuf(spans, self._cluster), compresslevel=1)

    def _send(self, message: bytes) -> int:
        request = urllib.request.Request(self.url, message, self._headers)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return _count_rejected(answer.read(_LONGEST_ANSWER), answer.headers.get("Content-Type", ""))
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read(_LONGEST_ANSWER).decode(errors="replace").strip()[:_LONGEST_REASON]
                raise _FailedAttempt(
                    f"HTTP {error.code} {error.reason}{': ' if reason else ''}{reason}",
                    is_final=error.code not in _RETRIED,
                    wait_s=_read_seconds(error.headers.get("Retry-After")),
                ) from None
        except (OSError, http.client.HTTPException) as error:
            why = str(getattr(error, "reason", error)) or type(error).__name__
            raise _FailedAttempt(why, is_final=False) from None


class OtlpGrpcExporter(OtlpExporter):
    """Sends spans by gRPC."""

    _hint = "is it the OTLP/gRPC receiver of a collector, usually at port 4317?"

    def __init__(
        self, endpoint: str, cluster: str, *, timeout_s: float = _TIMEOUT_S, pause: Pause = time.sleep
    ) -> None:
        """`endpoint`: the URL of a collector, https for TLS; its path means nothing. Raises OtlpPackageMissing."""
        super().__init__(pause)
        if not is_collector_url(endpoint):
            raise ValueError(endpoint)
        create_request((), cluster)
        try:
            import grpc
            from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
        except ImportError:
            raise OtlpPackageMissing("grpcio", "otlp-grpc") from None
        self.url = endpoint
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._error = grpc.RpcError
        self._gzip = grpc.Compression.Gzip
        found = urllib.parse.urlsplit(endpoint)
        secure = found.scheme == "https"
        host = f"[{found.hostname}]" if ":" in (found.hostname or "") else found.hostname
        target = f"{host}:{found.port or (443 if secure else 80)}"
        options = [("grpc.primary_user_agent", _USER_AGENT)]
        self._channel = (
            grpc.secure_channel(target, grpc.ssl_channel_credentials(), options)
            if secure
            else grpc.insecure_channel(target, options)
        )
        stub: Callable[..., Any] = TraceServiceStub
        self._export = stub(self._channel).Export
        headers = _read_headers(os.environ.get(HEADERS_VARIABLE, ""))
        self._metadata = [(name.lower(), value) for name, value in headers.items()]

    def close(self) -> None:
        """Closes the channel."""
        self._channel.close()

    def _encode(self, spans: Sequence[Span]) -> Any:
        return create_request(spans, self._cluster)

    def _send(self, message: Any) -> int:
        try:
            answer = self._export(
                message, timeout=self._timeout_s, metadata=self._metadata, compression=self._gzip
            )
        except self._error as error:
            code, details = error.code().name, (error.details() or "")[:_LONGEST_REASON]
            raise _FailedAttempt(
                f"gRPC {code}{': ' if details else ''}{details}", is_final=code not in _RETRIED_CODES
            ) from None
        return int(answer.partial_success.rejected_spans)


_EXPORTERS: Final[Mapping[OtlpProtocol, Callable[..., OtlpExporter]]] = {
    OtlpProtocol.HTTP: OtlpHttpExporter,
    OtlpProtocol.GRPC: OtlpGrpcExporter,
}


def create_exporter(
    protocol: OtlpProtocol, endpoint: str, cluster: str, *, timeout_s: float = _TIMEOUT_S
) -> OtlpExporter:
    """Returns the exporter of a protocol. Raises OtlpPackageMissing, and ValueError if `endpoint` is no URL of a
    collector."""
    return _EXPORTERS[protocol](endpoint, cluster, timeout_s=timeout_s)


def to_traces_url(endpoint: str) -> str:
    """Returns the URL that traces are sent to over HTTP. Raises ValueError if `endpoint` is no URL of a collector."""
    if not is_collector_url(endpoint):
        raise ValueError(endpoint)
    found = urllib.parse.urlsplit(endpoint)
    return endpoint if found.path.strip("/") else found._replace(path=TRACES_PATH).geturl()


def _read_headers(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {key.strip(): urllib.parse.unquote(value.strip()) for key, _, value in pairs if key.strip()}


def _read_seconds(text: str | None) -> float | None:
    """Returns the seconds of a Retry-After header; None for a date, which OTLP does not need."""
    return float(text) if text is not None and text.isdecimal() else None


def _count_rejected(answer: bytes, content_type: str) -> int:
    if not content_type.startswith("application/x-protobuf"):
        return 0
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

    try:
        found = trace_service_pb2.ExportTraceServiceResponse.FromString(answer)
    except DecodeError:
        return 0
    return int(found.partial_success.rejected_spans)
