"""What embedded servers have in common: another process can attach, and they end with their owner."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from polling import TIMEOUT_S

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.zookeeper import EmbeddedZooKeeper

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize("kind", [EmbeddedKafka, EmbeddedZooKeeper], ids=["kafka", "zookeeper"]),
]

Kind = type[EmbeddedKafka] | type[EmbeddedZooKeeper]


def test_second_process_attaches_to_server_and_starts_no_other(kind: Kind, tmp_path: Path) -> None:
    server = kind(tmp_path).start()
    try:
        with pytest.raises(kind.unavailable, match=f"already running over .* .pid {server.pid}"):
            kind(tmp_path).start()
        attached = kind.attach(tmp_path)
        assert (attached.pid, attached.address) == (server.pid, server.address)
        assert attached.is_running()
        attached.stop()
        assert not attached.is_running()
        assert not server.is_running()
        with pytest.raises(kind.unavailable, match=f"no {kind.name} is running over"):
            kind.attach(tmp_path)
    finally:
        server.kill()


def test_temporary_server_removes_its_files(kind: Kind) -> None:
    with kind() as server:
        pid, folder = server.pid, server.data_dir
        assert folder.is_dir()
    assert not folder.exists()
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize("detached", [False, True])
def test_server_ends_with_owner_unless_detached(kind: Kind, tmp_path: Path, detached: bool) -> None:
    script = (
        f"import sys, time; from pathlib import Path; from {kind.__module__} import {kind.__name__}\n"
        f"{kind.__name__}(Path(sys.argv[1])).start(detached={detached}); print('up', flush=True); time.sleep(300)"
    )
    owner = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "up\n"
    server = psutil.Process(kind.attach(tmp_path).pid)
    try:
        os.kill(owner.pid, signal.SIGKILL)
        owner.communicate()
        if detached:
            with pytest.raises(psutil.TimeoutExpired):
                server.wait(1.0)
        else:
            server.wait(TIMEOUT_S)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            server.kill()
