"""A mark that identifies a process uniquely, on this machine and elsewhere, also after its end.

It contains the machine's boot id, the PID namespace, the pid, and the start time in kernel ticks since boot, which
clock changes do not affect. With a mark of the same machine and namespace a process can decide whether the marked
process is alive, even if its pid was reused. Only Linux provides all parts; elsewhere there are no marks.
"""

from __future__ import annotations

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START = 19
"""The index of the start time in /proc/PID/stat, counted after the name (proc_pid_stat(5), field 22)."""
_ZOMBIE = "Z"


def create_marker(pid: int) -> str:
    """Returns the mark of a running process; empty if it is not available."""
    try:
        place = _place()
        return f"{place}:{pid}:{_start(pid)}" if place else ""
    except OSError:
        return ""


def is_from_here(mark: str) -> bool:
    """Returns whether the mark is of this machine's current boot and this PID namespace, so that
    `processes.find_marked` can decide."""
    place = _place()
    return place != "" and mark.startswith(f"{place}:")


def marked_pid(mark: str) -> int:
    """Returns the pid in a mark."""
    return int(mark.split(":")[2])


def _place() -> str:
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
        return f"{_BOOT_ID.read_text('ascii').strip()}:{namespace}"
    except OSError:
        return ""


def _start(pid: int) -> str:
    """Raises OSError if there is no such process, or only a zombie."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    if fields[0] == _ZOMBIE:
        raise ProcessLookupError(f"process {pid} has ended")
    return fields[_START]
