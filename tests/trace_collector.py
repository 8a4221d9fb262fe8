"""A collector of traces: a server in this process that reads OTLP in protobuf over HTTP, or by gRPC."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from http_server import HttpHandler, HttpServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)


class Collector:
    """What a collector has received. `answers`: the statuses of the next requests over HTTP, `codes`: the same of gRPC;
    success after them."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Any] = []
        self.paths: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.answers: list[int] = []
        self.codes: list[grpc.StatusCode] = []
        self.retry_after: str | None = None
        self.rejected = 0

    @property
    def spans(self) -> list[Any]:
        """All spans, in the order in which they came."""
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def ids(self) -> list[tuple[str, str, str]]:
        """Returns the trace, the span and its parent of all spans, in hexadecimal."""
        return [(span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()) for span in self.spans]


@contextmanager
def run_collector() -> Iterator[Collector]:
    """Runs a collector on a free port of this machine."""
    collector = Collector()

    class Handler(HttpHandler):
        def do_POST(self) -> None:
            content = self.read_body()
            status = collector.answers.pop(0) if collector.answers else 200
            collector.paths.append(self.path)
            collector.headers.append(dict(self.headers))
            answer = b"no room\n"
            if status == 200:
                collector.requests.append(ExportTraceServiceRequest.FromString(gzip.decompress(content)))
                response = ExportTraceServiceResponse()
                response.partial_success.rejected_spans = collector.rejected
                answer = response.SerializeToString()
            headers = {"Content_Type": "application/x-protobuf"}
            if status != 200 and collector.retry_after is not None:
                headers["Retry_After"] = collector.retry_after
            self.answer(status, answer, **headers)

    with HttpServer(Handler) as server:
        collector.url = server.url
        yield collector


@contextmanager
def run_grpc_collector() -> Iterator[Collector]:
    """Runs a collector for gRPC on a free port of this machine."""
    collector = Collector()

    class Service(TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            collector.headers.append(dict(context.invocation_metadata()))
            if collector.codes:
                context.abort(collector.codes.pop(0), "no room")
            collector.requests.append(request)
            response = ExportTraceServiceResponse()
            response.partial_success.rejected_spans = collector.rejected
            return response

    server = grpc.server(ThreadPoolExecutor(1))
    add: Callable[..., object] = add_TraceServiceServicer_to_server
    add(Service(), server)
    collector.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
