"""Whether a real cluster's log is decided again as it was: `tailrace replay --check`, for logs that tests have made."""

from __future__ import annotations

from contextlib import closing

from tailrace.services.configuration import Configuration
from tailrace.services.history.replay import DecisionCheck, ReplayCounts
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.factory import open_event_log


def differences(configuration: Configuration) -> tuple[list[str], ReplayCounts]:
    """Each difference at length, and what was looked at."""
    check = DecisionCheck()
    found: list[str] = []
    with closing(open_event_log(configuration)) as log:
        for batch in read_to_end(log):
            found += ["\n".join(each.format_lines()) for each in check.check_all(batch)]
    check.finish()
    return found, check.counts
