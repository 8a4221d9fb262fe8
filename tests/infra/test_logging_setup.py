"""Log lines of a process go to stderr, one per line. structlog is loaded with the first line."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import tailrace
from tailrace.infra.logging_setup import FORMAT_VARIABLE, logger
from tailrace.services.configuration.options import environment_variable
from tailrace.services.configuration.options.cluster import LOG_FORMAT

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


JSON = "import logging; from tailrace.infra.logging_setup import LogFormat; log_to_stderr(LogFormat.JSON); "


def test_json_lines_have_the_same_keys_from_both_loggers() -> None:
    _, error = run_code(
        f"{JSON}logger('a').warning('it', job_id='j', number=1, ratio=0.5, path=sys, nothing=None)\n"
        "logging.getLogger('b').warning('of %s', 'b')"
    )
    own, standard = map(json.loads, error.splitlines())
    assert {key: own[key] for key in ("level", "logger", "event", "job_id", "number", "ratio", "nothing")} == {
        "level": "warning", "logger": "a", "event": "it", "job_id": "j", "number": 1, "ratio": 0.5, "nothing": None,
    }  # fmt: skip
    assert own["path"].startswith("<module")
    assert {key: standard[key] for key in ("level", "logger", "event")} == {
        "level": "warning", "logger": "b", "event": "of b",
    }  # fmt: skip
    assert all(datetime.fromisoformat(line["timestamp"]).tzinfo is not None for line in (own, standard))


def test_json_line_has_exception_and_no_secret_and_no_line_break() -> None:
    _, error = run_code(
        f"{JSON}\n"
        "for log in (logger('a'), logging.getLogger('b')):\n"
        "    try: raise ValueError('password=abcdef \\n \"}{')\n"
        "    except ValueError: log.exception('gone')"
    )
    assert "abcdef" not in error
    for line in map(json.loads, error.splitlines()):
        assert line["event"] == "gone"
        assert "Traceback" in line["exception"]
        assert 'password=*** \n "}{' in line["exception"]


def test_json_line_has_trace_of_request() -> None:
    use = "from tailrace.infra.open_telemetry import use_traceparent; use_traceparent"
    _, error = run_code(
        f"{JSON}{use}('00-{'a' * 32}-{'b' * 16}-01'); logger('a').info('it'); logging.warning('it'); "
        "use_traceparent(None); logger('a').info('it')"
    )
    first, second, third = map(json.loads, error.splitlines())
    for line in (first, second):
        assert (line["trace_id"], line["span_id"]) == ("a" * 32, "b" * 16)
    assert "trace_id" not in third


def test_child_process_logs_in_format_of_parent() -> None:
    code = "from tailrace.infra.logging_setup import log_to_stderr, logger; log_to_stderr(); logger('a').info('it')"
    _, error = run_code(f"{JSON}import subprocess; subprocess.run([sys.executable, '-c', {code!r}])")
    assert json.loads(error)["event"] == "it"


def test_variable_of_format_is_that_of_the_option() -> None:
    assert environment_variable(LOG_FORMAT.key) == FORMAT_VARIABLE


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
