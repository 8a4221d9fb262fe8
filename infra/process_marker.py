"""A mark that tells a process from all others, on its machine and elsewhere, also when it has ended.

It names the machine's boot, the PID namespace, the pid, and when the process began, in the kernel's ticks since that
boot, which no change of a clock moves. Who holds a mark of his own machine and namespace can say for certain whether
its process lives: another one that was given the pid later is never taken for it. Only Linux tells all of that;
elsewhere there are no marks.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

from .processes import ProcessIdentity

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START = 19
"""Place of the start time in /proc/PID/stat, counted from behind the name (proc_pid_stat(5), field 22)."""
_ZOMBIE = "Z"


def create_marker(pid: int) -> str:
    """The mark of a process that lives; empty where it can't be told."""
    try:
        place = _place()
        return f"{place}:{pid}:{_start(pid)}" if place else ""
    except OSError:
        return ""


def is_from_here(mark: str) -> bool:
    """Whether the mark is of this machine's present boot and of our PID namespace, so that `living` can tell."""
    place = _place()
    return place != "" and mark.startswith(f"{place}:")


def living(mark: str) -> ProcessIdentity | None:
    """The process of a mark that is from here; None where it has ended."""
    _, _, pid, start = mark.split(":")
    with contextlib.suppress(OSError, psutil.Error):
        identity = ProcessIdentity.from_pid(int(pid))
        # Looked at last: until then the pid may have gone to another process.
        if _start(int(pid)) == start:
            return identity
    return None


def _place() -> str:
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
        return f"{_BOOT_ID.read_text('ascii').strip()}:{namespace}"
    except OSError:
        return ""


def _start(pid: int) -> str:
    """Raises OSError where there is no such process, or only what is left of one."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    if fields[0] == _ZOMBIE:
        raise ProcessLookupError(f"process {pid} has ended")
    return fields[_START]
