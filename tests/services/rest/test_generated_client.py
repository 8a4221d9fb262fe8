"""A client that openapi-python-client generates from our OpenAPI document lists, submits and cancels jobs."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.services.rest.flink import ids

from .test_application import COMMANDS, jobs_of_log
from .test_server import HOST, serving

PACKAGE = "generated_rest_client"


@pytest.fixture
def rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yields a function that calls an operation of the generated client."""
    with serving() as port:
        url = f"http://{HOST}:{port}"
        document, options = tmp_path / "openapi.json", tmp_path / "options.yaml"
        with urllib.request.urlopen(f"{url}/api/v1/openapi.json", timeout=90) as answer:
            document.write_bytes(answer.read())
        # Without hooks: they only lay the code out.
        options.write_text(json.dumps({"post_hooks": []}))
        arguments = ["--path", str(document), "--config", str(options), "--meta", "none", "--fail-on-warning"]
        arguments += ["--output-path", str(tmp_path / PACKAGE)]
        subprocess.run(
            [sys.executable, "-m", "openapi_python_client", "generate", *arguments],
            check=True,
            timeout=120,
        )
        monkeypatch.syspath_prepend(tmp_path)
        with importlib.import_module(PACKAGE).Client(base_url=url) as client:

            def call(operation: str, *arguments: object, **named: object) -> Any:
                module = importlib.import_module(f"{PACKAGE}.api.default.{operation}")
                return module.sync(*arguments, client=client, **named)

            yield call
    for name in [each for each in sys.modules if each.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_client_from_openapi_document_lists_submits_and_cancels_jobs(rest: Any) -> None:
    (job,) = rest("get_v1_jobs").jobs
    assert [job.id] == [ids.to_job_id(each) for each in jobs_of_log()]
    assert rest("get_v1_jobs_jobid", job.id).jid == job.id
    assert rest("get_v1_jobs_jobid", "0" * 32).errors == [f"Job {'0' * 32} not found"]
    assert rest("get_api_v1_events", from_="0", limit=2).next_ == 2

    models = importlib.import_module(f"{PACKAGE}.models")
    body = models.SubmissionBody(target="word_count:main", parallelism=2)
    assert rest("post_api_v1_submissions", body=body, idempotency_key="k").job_id == "word_count:main"
    cancelled = len(COMMANDS.traceparents)
    assert rest("patch_v1_jobs_jobid", job.id).to_dict() == {}
    assert len(COMMANDS.traceparents) == cancelled + 1
