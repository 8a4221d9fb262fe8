"""Forgotten jobs are found by each form of their id, and the oldest ones are dropped."""

from __future__ import annotations

import pytest

from tailrace.schemas.types import JobStatus
from tailrace.services.history import forgotten_jobs
from tailrace.services.history.forgotten_jobs import ForgottenJob, ForgottenJobs
from tailrace.services.rest.flink import ids


def test_forgotten_job_is_found_by_both_ids_until_it_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgotten_jobs, "MAX_JOBS", 2)
    names = ["chosen", f"count-{'0a' * 16}", f"count-{'0b' * 16}"]
    jobs = {name: ForgottenJob(name, JobStatus.FINISHED, offset) for offset, name in enumerate(names)}
    known = ForgottenJobs()
    for name in names:
        known.add({name: jobs[name]})
    for each in (known, ForgottenJobs(known.all())):
        assert list(each.all()) == names[1:]
        for name in names:
            expected = None if name == "chosen" else jobs[name]
            assert each.get(name) == each.get(ids.to_job_id(name)) == expected
