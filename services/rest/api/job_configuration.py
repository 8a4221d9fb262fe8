"""The options of one job, and which may change while it runs: GET /api/v1/jobs/:jobid/configuration."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ....infra.redaction import HIDDEN, is_secret, redacted
from ....pipelines.graph.job_options import BY_KEY
from ...configuration.role_options import job_configuration
from ..endpoint import Endpoint, Parameters
from ..errors import NotFound
from ..flink.endpoints import path_parameters
from ..flink.lookup import dispatcher, find_graph, find_job
from ..moment import Moment


class JobOption(msgspec.Struct, frozen=True, rename="camel"):
    """An option of a job. `isDynamic`: it may change while the job runs. `isChanged`: it has another value than the job
    was started with."""

    key: str
    value: str
    is_dynamic: bool
    is_changed: bool


class JobConfiguration(msgspec.Struct, frozen=True):
    """/api/v1/jobs/:jobid/configuration"""

    options: Sequence[JobOption]


def configuration(moment: Moment, parameters: Parameters) -> JobConfiguration:
    """GET /jobs/:jobid/configuration: the options of a job, with the defaults that hold for it"""
    _, view = find_job(moment, parameters)
    own = find_graph(moment, view).configuration
    effective = {
        **{key: option.write(option.default) for key, option in BY_KEY.items()},
        **job_configuration(dispatcher(moment).configuration or {}, own),
        **view.changed_options,
    }
    return JobConfiguration(
        [
            JobOption(
                key,
                HIDDEN if is_secret(key) else redacted(effective[key]),
                option.is_dynamic,
                key in view.changed_options,
            )
            for key, option in BY_KEY.items()
        ]
    )


_PATH = "/jobs/{jobid}/configuration"
READS = (Endpoint("GET", _PATH, path_parameters(_PATH), view=configuration, errors=(NotFound,)),)
