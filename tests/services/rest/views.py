"""Calls every view of a moment with all ids that it knows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.services.core.role import RESOURCE_MANAGER
from tailrace.services.rest.endpoint import Endpoint
from tailrace.services.rest.errors import NotFound
from tailrace.services.rest.flink.endpoints import READS
from tailrace.services.rest.moment import Moment

VIEWS = {endpoint.path: endpoint for endpoint in READS}


def view(moment: Moment, path: str, **parameters: Any) -> Any:
    """Returns the answer of a GET on a path."""
    found = VIEWS[path].view
    assert found is not None
    return found(moment, parameters)


def parameters_of(moment: Moment, endpoint: Endpoint) -> Iterator[Mapping[str, Any]]:
    """Yields the parameters of a path: known ids, and one of each kind that is not known."""
    names = {parameter.name for parameter in endpoint.path_parameters}
    of_job = names & {"jobid", "applicationid"}
    jobs = [job.id for job in view(moment, "/jobs").jobs] if of_job else [None]
    workers = sorted(getattr(moment.fold.replica.states.get(RESOURCE_MANAGER), "workers", {}))
    for job_id in [*jobs, "0" * 32] if of_job else jobs:
        vertices: list[Any] = [None]
        if "vertexid" in names:
            try:
                vertices = [vertex.id for vertex in view(moment, "/jobs/{jobid}", jobid=job_id).vertices]
            except NotFound:
                vertices = []
            vertices.append("0" * 32)
        choices = {
            "checkpointid": (1, 2, 999),
            "subtaskindex": (0, 7),
            "attempt": (0, 1),
            "taskmanagerid": (*workers, "nobody"),
            "triggerid": (*trigger_ids(moment), "0" * 32),
        }
        others = [name for name in choices if name in names]
        for vertex_id in vertices:
            for values in itertools.product(*(choices[name] for name in others)):
                given = {
                    **dict.fromkeys(of_job, job_id),
                    "vertexid": vertex_id,
                    **dict(zip(others, values, strict=True)),
                }
                yield {name: value for name, value in given.items() if value is not None}


def trigger_ids(moment: Moment) -> list[str]:
    """Returns the ids of known requests for checkpoints, savepoints and disposals."""
    requests = moment.fold.snapshot_requests
    known = {**requests.all(), **requests.disposals()}
    return [requester.removeprefix("client/rest-") for requester in known]
