"""What a log must never hold, checked by code that the roles do not share.

The checker reads events as plain data, applies fencing by a few lines of its own, and follows the conversation from
outside: whose words made a slot held, which attempt had ended when the next was submitted, who still owes an answer.
It knows nothing of the roles' states and imports nothing of them, so that a mistake that they all share shows.

`python -m tests.log_checker --help` checks a log on Kafka or a dump of one.
"""

from .events import Event, dump, load
from .invariants import Violation, check

__all__ = ["Event", "Violation", "check", "dump", "load"]
