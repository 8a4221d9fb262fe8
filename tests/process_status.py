"""Tells whether a process has ended, also where nobody waits for it.

The first process of a container may never wait for orphans, and an orphan that has ended then stays a zombie.
"""

from __future__ import annotations

import psutil


def has_ended(pid: int) -> bool:
    """Returns whether the process runs no more: there is no such process, or it is a zombie."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return True
