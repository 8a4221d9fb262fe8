"""schemathesis: requests made from the OpenAPI document get documented answers, and no 500."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from .test_application import client

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
# Streams are no answers in JSON: test_events.py, test_what_if.py and test_replay.py have them.
schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", client().app).exclude(
    path_regex="/(stream|what-if|replay-check)$"
)
QUICK = settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
LONG = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@schema.parametrize()
@QUICK
def test_answers_are_documented(case: schemathesis.Case[Any]) -> None:
    check(case)


@pytest.mark.soak
@schema.parametrize()
@LONG
def test_answers_to_many_requests_are_documented(case: schemathesis.Case[Any]) -> None:
    check(case)


def check(case: schemathesis.Case[Any]) -> None:
    response = case.call()
    checks = CHECKS if response.status_code != 501 else CHECKS[1:]
    case.validate_response(response, checks=checks)
