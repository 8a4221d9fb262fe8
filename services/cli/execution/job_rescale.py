"""Changes the parallelism of a job, and shows the progress until it runs at the new one."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ....schemas.types import ParallelismBounds
from ...client.rescale_requests import RescaleFailedError, RescaleRequest
from ...client.rest_client import RestClient, open_job_client
from ...configuration import Configuration
from ..args.common_options import Format
from ..exit_codes import CommandFailure, ExitCode
from ..render.formatting import format_duration
from ..render.output import print_json, print_progress, print_result
from .job_control import check_not_ended, read_job


def rescale(
    configuration: Configuration,
    wanted: str,
    parallelism: int | None,
    vertices: Mapping[str, int],
    *,
    reason: str,
    detached: bool,
    output: Format,
) -> None:
    """Requests another parallelism, and waits for it. `vertices`: by id or name. Raises CommandFailure, NoAnswerError,
    LogUnavailable."""
    fold, job = read_job(configuration, wanted)
    check_not_ended(job, "its parallelism can't change")
    bounds = {name: ParallelismBounds(lower_bound=1, upper_bound=count) for name, count in vertices.items()}
    start = time.monotonic()
    with open_job_client(configuration, "rescale", 10.0) as client, client.subscribe() as conversation:
        conversation.follow(job.job_id)
        client.rescale(job.job_id, parallelism, bounds, reason=reason)
        if detached:
            print_progress(f"job {job.job_id}: another parallelism is requested")
            return
        # A REST server sends the request from an address that it chooses.
        requester = "client/rest-" if isinstance(client, RestClient) else client.address
        request, shown = RescaleRequest(job.job_id, requester), _Progress(job.job_id)
        try:
            changed = request.wait(conversation, show=shown.show)
        except RescaleFailedError as error:
            raise CommandFailure(ExitCode.JOB, f"job {job.job_id} is not rescaled: {error}") from None
    duration = time.monotonic() - start
    graph = fold.executions.graph(job.job_id)
    names = {} if graph is None else {vertex.vertex_id: vertex.name for vertex in graph.vertices}
    if output is Format.JSON:
        found = {names.get(vertex_id, vertex_id): count for vertex_id, count in sorted(changed.items())}
        print_json({"job_id": job.job_id, "parallelism": found, "duration_ms": round(duration * 1000)})
        return
    if not changed:
        print_progress(f"job {job.job_id} runs at this parallelism already")
        return
    for vertex_id, count in changed.items():
        print_result(f"{count}  {names.get(vertex_id, vertex_id)}")
    print_progress(f"job {job.job_id} is rescaled: {format_duration(round(duration * 1e6))}")


class _Progress:
    """Shows each step once."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._shown: set[str] = set()

    def show(self, request: RescaleRequest) -> None:
        """Shows where the rescale is."""
        if request.is_restarting:
            self._print(f"the tasks restart from checkpoint {request.cut}")
        elif request.cut is not None:
            self._print(f"checkpoint {request.cut} is taken, behind which all tasks stand still")
        elif request.is_started:
            self._print("the job runs on until the slots for the new parallelism are there")

    def _print(self, line: str) -> None:
        if line not in self._shown:
            self._shown.add(line)
            print_progress(line)
