"""Log lines of a process go to stderr, one per line. structlog is loaded with the first line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import tailrace
from tailrace.infra.logging_setup import logger

PACKAGES = [Path(tailrace.__file__).parent / name for name in ("infra", "schemas", "services", "pipelines")]


def run_code(code: str) -> tuple[str, str]:
    """Returns stdout and stderr of a process."""
    begin = "import sys; from tailrace.infra.logging_setup import disable_logging, log_to_stderr, logger; "
    result = subprocess.run([sys.executable, "-c", begin + code], capture_output=True, text=True, check=True)
    return result.stdout, result.stderr


def test_process_without_log_lines_does_not_load_structlog() -> None:
    assert run_code("log_to_stderr(); logger('a'); print('structlog' in sys.modules)") == ("False\n", "")


@pytest.mark.parametrize("before", ["", "import structlog; "])
def test_log_lines_go_to_stderr(before: str) -> None:
    out, error = run_code(
        f"{before}log_to_stderr(); logger('a').debug('x'); logger('a').warning('it', of='b')"
    )
    assert out == ""
    (line,) = error.splitlines()
    assert "[warning" in line
    assert "it " in line
    assert line.endswith("of=b")


def test_exception_is_logged_with_stack_trace() -> None:
    _, error = run_code(
        "log_to_stderr()\ntry: 1 / 0\nexcept ZeroDivisionError: logger('a').exception('gone')"
    )
    assert "gone" in error
    assert "ZeroDivisionError" in error
    assert "Traceback" in error


def test_full_screen_mode_suppresses_log_lines() -> None:
    assert run_code("log_to_stderr(); disable_logging(); logger('a').error('it')") == ("", "")


def test_capture_logs_captures_log_lines() -> None:
    with capture_logs() as logs:
        logger("a").info("it", of="b")
    assert logs == [{"event": "it", "of": "b", "log_level": "info"}]


def test_no_module_bypasses_logging_setup() -> None:
    files = [path for package in PACKAGES for path in package.rglob("*.py")]
    assert {path.name for path in files if "import structlog" in path.read_text("utf-8")} == {
        "logging_setup.py"
    }
