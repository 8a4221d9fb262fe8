"""What a process says to people: on stderr, a line each, and structlog is loaded when there is something to say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import tailrace
from tailrace.infra.logging_setup import logger

PACKAGES = [Path(tailrace.__file__).parent / name for name in ("infra", "schemas", "services", "pipelines")]


def said(code: str) -> tuple[str, str]:
    """stdout and stderr of a process."""
    begin = "import sys; from tailrace.infra.logging_setup import disable_logging, log_to_stderr, logger; "
    done = subprocess.run([sys.executable, "-c", begin + code], capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


def test_a_process_that_has_nothing_to_say_does_not_load_structlog() -> None:
    assert said("log_to_stderr(); logger('a'); print('structlog' in sys.modules)") == ("False\n", "")


@pytest.mark.parametrize("before", ["", "import structlog; "])
def test_what_is_said_goes_to_stderr(before: str) -> None:
    out, error = said(f"{before}log_to_stderr(); logger('a').debug('x'); logger('a').warning('it', of='b')")
    assert out == ""
    (line,) = error.splitlines()
    assert "[warning" in line
    assert "it " in line
    assert line.endswith("of=b")


def test_an_exception_comes_with_its_stack() -> None:
    _, error = said("log_to_stderr()\ntry: 1 / 0\nexcept ZeroDivisionError: logger('a').exception('gone')")
    assert "gone" in error
    assert "ZeroDivisionError" in error
    assert "Traceback" in error


def test_under_a_screen_nothing_is_said() -> None:
    assert said("log_to_stderr(); disable_logging(); logger('a').error('it')") == ("", "")


def test_a_test_sees_what_is_said() -> None:
    with capture_logs() as logs:
        logger("a").info("it", of="b")
    assert logs == [{"event": "it", "of": "b", "log_level": "info"}]


def test_nothing_goes_past_it() -> None:
    files = [path for package in PACKAGES for path in package.rglob("*.py")]
    assert {path.name for path in files if "import structlog" in path.read_text("utf-8")} == {
        "logging_setup.py"
    }
