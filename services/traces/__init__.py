"""Traces for OpenTelemetry, from the log: every event is a span, and its cause is the span's parent (docs/traces.md).

traced_event.py takes from an event what a span needs, span_builder.py makes spans, otlp.py encodes and sends them, and
reporter.py does so while a master runs. All ids are derived from the log, so the same log gives the same traces.
"""
