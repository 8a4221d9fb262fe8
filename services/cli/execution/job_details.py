"""Prints one job in full: its state, its subtasks with their metrics, and its last failures."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ....infra.sanitize import escape_control_characters
from ...client.accumulators import JobAccumulators, read_accumulators
from ...configuration import Configuration
from ...history import HistoryProjection
from ...history.cluster_view import SubtaskStateView, describe_waiting, find_started_job, subtasks
from ..args.common_options import Format
from ..render.job import (
    DECISION_COLUMNS,
    decision_rows,
    format_failures,
    format_job,
    job_to_data,
    rows_of,
)
from ..render.output import print_json, print_result, print_table
from .job_control import read_job


def print_job(configuration: Configuration, wanted: str, output: Format, *, failures: int) -> None:
    """Prints a job, with its last `failures` failures. Raises CommandFailure, LogUnavailable."""
    fold, job = read_job(configuration, wanted)
    running = subtasks(fold.replica, job.job_id)
    counted = _read_counts(configuration, fold, job.job_id, running)
    if counted is not None:
        job = replace(job, accumulators=counted.accumulators)
    metrics = counted.metrics if counted is not None else {}
    waits = describe_waiting(fold, job)
    state = find_started_job(fold.replica.states, job.job_id)
    decisions = () if state is None else state.autoscaling.decisions
    if output is Format.JSON:
        print_json(job_to_data(job, running, metrics, waits, decisions))
        return
    for line in format_job(job, waits):
        print_result(escape_control_characters(line))
    if running:
        print_result("")
        print_table("Subtasks", *rows_of(running, metrics))
    if decisions:
        print_result("")
        print_table("Decisions of the autoscaler", DECISION_COLUMNS, decision_rows(decisions))
    for line in format_failures(job.failures[len(job.failures) - failures :]):
        print_result(escape_control_characters(line))


def _read_counts(
    configuration: Configuration, fold: HistoryProjection, job_id: str, running: Sequence[SubtaskStateView]
) -> JobAccumulators | None:
    """Returns the current accumulators and metrics of a job, or None if none of its tasks run."""
    state = find_started_job(fold.replica.states, job_id)
    if not running or state is None:
        return None
    attempts = {attempt: state.executions[attempt].vertex for attempt in state.current_attempts.values()}
    return read_accumulators(configuration, job_id, attempts, dict(state.accumulators))
