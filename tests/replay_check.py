"""Recomputes the decisions in the log of a real cluster, as `tailrace replay --check` does."""

from __future__ import annotations

from contextlib import closing

from tailrace.services.configuration import Configuration
from tailrace.services.history.replay import DecisionCheck, ReplayCounts
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.factory import open_event_log


def differences(configuration: Configuration) -> tuple[list[str], ReplayCounts]:
    """Returns each difference in detail, and a summary of what was checked."""
    check = DecisionCheck()
    results: list[str] = []
    with closing(open_event_log(configuration)) as log:
        for batch in read_to_end(log):
            results += ["\n".join(difference.format_lines()) for difference in check.check_all(batch)]
    check.finish()
    return results, check.counts
