"""Prints what a job's print sinks wrote."""

from __future__ import annotations

from ....schemas.client import JobStatusChanged
from ....schemas.states import JOB_ENDS
from ...client import OutputRecord
from ...client.rest_client import open_job_client
from ...client.rest_output import output_reader
from ...configuration import Configuration
from ..args.common_options import Format
from ..render.output import print_verbatim, to_json
from .job_control import find_job, read_job, read_jobs


def print_output(configuration: Configuration, wanted: str, output: Format, *, follow: bool) -> None:
    """Prints the output so far; `follow`: until the job has ended. Raises CommandFailure, LogUnavailable."""
    read = output_reader(configuration)
    _, job = read_job(configuration, wanted)
    if not follow or job.status in JOB_ENDS:
        for record in read(configuration, job.job_id):
            print_verbatim(format_output(record, output))
        return
    with (
        open_job_client(configuration, "output", 10.0, sends=False) as client,
        client.subscribe() as conversation,
    ):
        # The job may have ended between the first read and the start of the subscription.
        ended = find_job(read_jobs(configuration), job.job_id).status in JOB_ENDS

        def over() -> bool:
            nonlocal ended
            for record in conversation.poll(0):
                body = record.body
                if isinstance(body, JobStatusChanged) and body.job_id == job.job_id:
                    ended = ended or body.status in JOB_ENDS
            return ended

        for record in read(configuration, job.job_id, over=over):
            print_verbatim(format_output(record, output))


def format_output(record: OutputRecord, output: Format) -> str:
    """Returns a printed record as `SUBTASK> TEXT` or `IDENTIFIER:SUBTASK> TEXT`, or all its fields as JSON."""
    if output is Format.JSON:
        return to_json(record)
    name = f"{record.identifier}:{record.subtask}" if record.identifier else str(record.subtask)
    return f"{name}> {record.text}"
