"""A pid in a file is that of one process: not of a later one, nor of one on another host that reads the file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tailrace.infra import process_marker
from tailrace.infra.processes import ProcessIdentity, find_marked


@pytest.fixture
def here() -> ProcessIdentity:
    identity = ProcessIdentity.from_pid(os.getpid())
    if not identity.mark:
        pytest.skip("this platform has no marks")
    return identity


def test_process_is_found_whatever_its_clock_said_when_it_started(here: ProcessIdentity) -> None:
    clock_was_set = msgspec.structs.replace(here, created=here.created - 7_200)
    found = clock_was_set.process()
    assert found is not None
    assert found.pid == os.getpid()
    assert find_marked(here.mark) == here


def test_process_of_other_boot_or_host_is_not_found(
    here: ProcessIdentity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("11111111-2222-3333-4444-555555555555\n")
    monkeypatch.setattr(process_marker, "_BOOT_ID", boot_id)
    assert here.process() is None
    assert find_marked(here.mark) is None


@pytest.mark.parametrize("end", [subprocess.Popen.kill, subprocess.Popen.terminate])
def test_process_that_has_ended_is_not_found_also_as_zombie(
    end: Callable[[subprocess.Popen[bytes]], None],
) -> None:
    with subprocess.Popen(["sleep", "infinity"]) as process:
        identity = ProcessIdentity.from_pid(process.pid)
        assert identity.process() is not None
        end(process)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert identity.process() is None
    assert identity.process() is None
