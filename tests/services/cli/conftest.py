"""Commands set up the logging of this process, and its environment (`--rest`): both are restored for the next tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest import mock

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(autouse=True)
def _environment_as_before() -> Iterator[None]:
    with mock.patch.dict(os.environ):
        yield
