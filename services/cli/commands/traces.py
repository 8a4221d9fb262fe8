"""`tailrace traces export`: makes spans of the log, and sends them to a collector or prints them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ....infra.open_telemetry import OtlpProtocol, is_collector_url
from ..args.common_options import Format, Output
from ..args.event_filter import Job, job_id
from ..args.log_source import DEFAULT_LOG, From, LogOptions, To, position_range
from ..args.option_groups import CommandGroup
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_json, print_progress, print_result
from ..render.progress import ProgressLine

if TYPE_CHECKING:
    from ...history.log_source import LogSource
    from ...traces.span import Span

app = CommandGroup(name="traces", help="Export traces for OpenTelemetry.", no_args_is_help=True)
_BATCH = 1_000


@app.command("export")
def export(
    otlp: Annotated[
        str | None,
        typer.Option(
            "--otlp",
            metavar="URL",
            help="The OTLP receiver of a collector, such as http://localhost:4318.",
        ),
    ] = None,
    protocol: Annotated[
        OtlpProtocol,
        typer.Option(
            "--protocol",
            envvar="OTEL_EXPORTER_OTLP_PROTOCOL",
            help="How spans are sent: by HTTP, usually to port 4318, or by gRPC, usually to port 4317.",
        ),
    ] = OtlpProtocol.HTTP,
    job: Job = None,
    first: From = None,
    last: To = None,
    output: Output = Format.TEXT,
    log_options: LogOptions = DEFAULT_LOG,
) -> None:
    """Make spans of the events of the log, and send them to a collector. With -o json, print them in OTLP's JSON.

    Ids are derived from the log: the same events give the same spans, whoever exports them and how often.
    """
    if otlp is None and output is not Format.JSON:
        raise CommandFailure(
            ExitCode.USAGE, "--otlp is missing: name a collector, or print the spans with -o json"
        )
    if otlp is not None and output is Format.JSON:
        raise CommandFailure(ExitCode.USAGE, "--otlp and -o json exclude each other: use one of them")
    if otlp is not None and not is_collector_url(otlp):
        raise CommandFailure(
            ExitCode.USAGE, f"--otlp {otlp} is no URL of a collector: give one such as http://localhost:4318"
        )
    with log_options.open() as source:
        start, end = position_range(source, first, last)
        wanted = None if job is None else job_id(source, job)
        batches = _read_batches(source, start, end, wanted)
        if otlp is None:
            _print(source, batches)
        else:
            _send(source, batches, otlp, protocol)


def _print(source: LogSource, batches: Iterator[list[Span]]) -> None:
    from ...traces.otlp import encode_json

    for batch in batches:
        print_json(encode_json(batch, source.cluster))


def _send(source: LogSource, batches: Iterator[list[Span]], otlp: str, protocol: OtlpProtocol) -> None:
    from ...traces.otlp_exporters import create_exporter

    exporter = create_exporter(protocol, otlp, source.cluster)
    sent = rejected = 0
    traces: set[str] = set()
    for batch in batches:
        rejected += exporter.export(batch)
        sent += len(batch)
        traces.update(span.trace_id for span in batch)
    if rejected:
        print_progress(f"tailrace: {exporter.url} has rejected {rejected:,} of these spans")
    print_result(f"sent {sent:,} spans of {len(traces):,} traces to {exporter.url}")


def _read_batches(source: LogSource, start: int, end: int, wanted: str | None) -> Iterator[list[Span]]:
    from ...traces.reader import read_spans

    batch: list[Span] = []
    with ProgressLine(f"reads {source.log.topic}", end) as progress:
        for span in read_spans(
            source.log, source.store, start=start, end=end, job_id=wanted, progress=progress
        ):
            batch.append(span)
            if len(batch) == _BATCH:
                yield batch
                batch = []
    if batch:
        yield batch
