"""All jobs of a log, also those that the cluster has forgotten: GET /api/v1/jobs/overview."""

from __future__ import annotations

from ..endpoint import Endpoint
from ..flink.job_list import all_jobs_overview

READS = (Endpoint("GET", "/jobs/overview", view=all_jobs_overview),)
