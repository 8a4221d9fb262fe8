"""Tells whether a process has ended, and reads from processes that may end meanwhile.

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


def process_name(process: psutil.Process) -> str:
    """Returns the name of a process, an empty text if it has ended."""
    try:
        return process.name()
    except psutil.Error:
        return ""


def children_of(process: psutil.Process) -> list[psutil.Process]:
    """Returns the children of a process, none if it has ended."""
    try:
        return process.children()
    except psutil.Error:
        return []


def command_line(process: psutil.Process) -> list[str]:
    """Returns the arguments of a process, none if it has ended or belongs to somebody else."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def environment(process: psutil.Process) -> dict[str, str]:
    """Returns the variables that a process started with, none if it has ended or belongs to somebody else."""
    try:
        return process.environ()
    except psutil.Error:
        return {}
