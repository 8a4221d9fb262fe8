"""Child processes that do not outlive their owner.

A killed owner cannot clean up. Therefore a *guard*, a small shell, waits on a pipe whose other end only the owner
holds. When the owner dies, for whatever reason, the kernel closes the pipe and the guard ends the child. Children have
their own session, so that Ctrl-C in a terminal reaches the owner only, which then stops them in order.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from .process_marker import create_marker, marked_pid

_GUARDS: set[subprocess.Popen[bytes]] = set()
"""The guards of this process. Their pipes stay open until it ends, also if nothing refers to the child any more: the
collector of garbage closes the pipe of an object that it finds in a cycle."""
_SAME_START_S = 0.5
_PAUSE_LOOK_S = 0.002
_PAUSE_TIMEOUT_S = 10.0
_START_TIME_AFTER_NAME = 19

# SIGTERM first, for a clean exit; SIGKILL after ten seconds. A pid, which may also be that of a thread, is used again
# soon: a process is the child only if it has the start time of the child (field 22 of /proc/PID/stat).
_GUARD = """
pid=$1 start_time=$2
is_running() {
  read -r stat 2>/dev/null <"/proc/$pid/stat" || return 1
  set -- ${stat##*) }
  [ "$1" != Z ] && [ "${20}" = "$start_time" ]
}
if read -r _; then exit 0; fi
is_running && kill -TERM "$pid" 2>/dev/null || exit 0
i=0
while [ $i -lt 100 ] && is_running; do sleep 0.1; i=$((i + 1)); done
is_running && kill -KILL "$pid" 2>/dev/null
exit 0
"""


def guard_command(pid: int, start_time: int) -> list[str]:
    """Returns the command of a guard: it ends the process when its own stdin closes, unless it has read a line.

    `start_time` in clock ticks since boot, as in /proc/PID/stat: another process that has the pid by then lives on.
    """
    return ["/bin/sh", "-c", _GUARD, "tailrace-guard", str(pid), str(start_time)]


def read_start_time(pid: int) -> int:
    """Returns when a process started, in clock ticks since boot. Raises FileNotFoundError if there is none."""
    _, _, fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")
    return int(fields.split()[_START_TIME_AFTER_NAME])


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process; it is never confused with another process of the same pid, later, after a reboot, or on another host
    that reads the same file.

    `created` in seconds since the epoch, from psutil: it changes when somebody sets the clock. `mark` is that of
    process_marker.py, which decides where it is available.
    """

    pid: int
    created: float
    mark: str = ""

    @classmethod
    def from_pid(cls, pid: int) -> ProcessIdentity:
        """Returns the process that currently has the pid. Raises psutil.NoSuchProcess."""
        return cls(pid, psutil.Process(pid).create_time(), create_marker(pid))

    def process(self) -> psutil.Process | None:
        """Returns the process if it still runs."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            if self._is_same(process):
                return process if process.status() != psutil.STATUS_ZOMBIE else None
        return None

    def _is_same(self, process: psutil.Process) -> bool:
        if self.mark:
            return create_marker(self.pid) == self.mark
        return abs(process.create_time() - self.created) < _SAME_START_S


def find_marked(mark: str) -> ProcessIdentity | None:
    """Returns the process of a mark from here (`is_from_here`); None if it has ended."""
    with contextlib.suppress(psutil.Error):
        identity = ProcessIdentity.from_pid(marked_pid(mark))
        return identity if identity.mark == mark else None
    return None


def wait_until_stopped(pid: int) -> None:
    """Returns when all threads of a process that got SIGSTOP have stopped, or when it has ended; after 10 s at the
    latest, as somebody else may have resumed it.

    The signal stops one thread after another: for a moment others still answer clients.
    """
    deadline = time.monotonic() + _PAUSE_TIMEOUT_S
    with contextlib.suppress(psutil.NoSuchProcess):
        while any(_is_running(thread.id) for thread in psutil.Process(pid).threads()):
            if time.monotonic() > deadline:
                return
            time.sleep(_PAUSE_LOOK_S)


def _is_running(thread: int) -> bool:
    try:
        return psutil.Process(thread).status() not in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.NoSuchProcess:
        return False


def end_process(process: psutil.Process, timeout_s: float | None) -> None:
    """Ends a process that another one started, like `OwnedProcess.stop`; `timeout_s` None: like `OwnedProcess.kill`."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if timeout_s is not None:
            process.terminate()
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(timeout_s)
                return
        process.kill()
        process.wait()


class OwnedProcess:
    """A child process with its output in a file. It ends with its owner, unless `detached`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        detached: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Starts it; stdout and stderr are appended to `log`. Raises OSError if it cannot be started.

        It inherits the open files of `pass_fds`, and so their locks, for as long as it lives.
        """
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        self._guard: subprocess.Popen[bytes] | None = None
        if not detached:
            self._guard = subprocess.Popen(
                # A child that has ended keeps its entry until it is waited for.
                guard_command(self._process.pid, read_start_time(self._process.pid)),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=os.sep,
                start_new_session=True,
            )
            _GUARDS.add(self._guard)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal, or None while it runs."""
        code = self._process.poll()
        if code is not None:
            self._dismiss_guard()
        return code

    def reap(self, timeout_s: float) -> int | None:
        """Like `poll`, but waits up to `timeout_s` seconds for its end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self.poll()

    def stop(self, timeout_s: float) -> None:
        """Ends the process: SIGTERM, then SIGKILL after `timeout_s` seconds; returns when it is gone."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._dismiss_guard()

    def kill(self) -> None:
        """Kills the process (SIGKILL); returns when it is gone."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._dismiss_guard()

    def _dismiss_guard(self) -> None:
        # The child has been reaped, so its pid may be reused: the guard must not signal it any more.
        guard, self._guard = self._guard, None
        if guard is not None:
            _GUARDS.discard(guard)
            with contextlib.suppress(OSError):
                guard.communicate(b"done\n", timeout=5)
