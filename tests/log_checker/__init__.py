"""Checks the invariants of a log, with code that the roles do not share.

The checker reads events as plain data, applies fencing by a few lines of its own, and follows the events from outside:
which TaskExecutor holds a slot, which attempt had ended when the next was submitted, which request has no answer yet.
It imports nothing of the roles, so that it also finds a mistake that all roles share.

`python -m tests.log_checker --help` checks a log on Kafka or a dump of one.
"""

from .events import Event, dump, load
from .invariants import Violation, check

__all__ = ["Event", "Violation", "check", "dump", "load"]
