"""Replays a log for `tailrace replay` and, with --check, compares the roles' decisions with it."""

from __future__ import annotations

from typing import Any

from ....infra.sanitize import escape_control_characters
from ...history.log_position import LogPosition
from ...history.log_source import LogSource
from ...history.replay.log_check import LogCheck, check_log
from ...history.time_travel import state_hash
from ..args.common_options import Format
from ..exit_codes import CommandFailure, ExitCode
from ..render.formatting import format_count
from ..render.output import print_json, print_result
from ..render.progress import ProgressLine


def replay_log(source: LogSource, to: str | None) -> LogCheck:
    """Replays up to OFFSET|TIME, or to the end. Raises LogTruncated, and as `LogSource.at`."""
    return _replay(source, to, "reads", 1, only_replays=True)


def check_decisions(source: LogSource, to: str | None, most: int) -> LogCheck:
    """Like `replay_log`; compares all decisions until there are `most` differences. Raises CommandFailure if the log
    marks no decisions."""
    found = _replay(source, to, "checks", most)
    if found.check.counts.events and not found.check.counts.decided:
        raise CommandFailure(
            ExitCode.NOT_FOUND,
            f"nothing can be checked in {source.log.topic}: none of its {found.check.counts.events:,} events is "
            "marked as a decision; an earlier release without such marks wrote them",
        )
    return found


def _replay(
    source: LogSource, to: str | None, verb: str, most: int, *, only_replays: bool = False
) -> LogCheck:
    end = source.log.end() if to is None else source.at(LogPosition.parse(to)) + 1
    with ProgressLine(f"{verb} {source.log.topic}", end) as progress:
        return check_log(source, end, most, only_replays=only_replays, on_progress=progress)


def print_check(found: LogCheck, output: Format, *, is_checked: bool) -> None:
    """Prints the differences, the state hash, and how much was compared."""
    replica, counts = found.check.replica, found.check.counts
    level = replica.leadership.feature_level
    data: dict[str, Any] = {
        "offset": replica.offset,
        "state_hash": state_hash(replica),
        "feature_level": level,
    }
    if output is Format.JSON:
        if is_checked:
            data["counts"] = counts
            data["differences"] = [difference.as_data() for difference in found.differences]
            data["complete"] = found.is_complete
        print_json(data)
        return
    for difference in found.differences:
        for line in difference.format_lines():
            print_result(escape_control_characters(line))
        print_result("")
    print_result(f"offset {replica.offset}  state hash {data['state_hash']}  feature level {level}")
    if not is_checked:
        return
    more = "" if found.is_complete else ", and maybe more later"
    print_result(
        f"{counts.events:,} events, {counts.decided:,} of them decided in {counts.turns:,} turns: "
        f"{format_count(len(found.differences), 'difference')}{more}"
    )
    skipped = {
        "fenced (their sender was a deposed leader)": counts.fenced,
        "incomplete (a leader died before it sent all its messages)": counts.cut_off,
        "decided on states that are too old to be kept": counts.too_old,
    }
    if any(skipped.values()):
        print_result(
            f"not compared: {'; '.join(f'{count:,} {what}' for what, count in skipped.items() if count)}"
        )
    if counts.hashes:
        print_result(f"{counts.hashes:,} state hashes of leaders compared")
