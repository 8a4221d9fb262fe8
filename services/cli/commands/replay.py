"""`tailrace replay`: replays a log and, with --check, compares the roles' decisions with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output
from ..args.log_source import PLACE, find_source
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_result
from ..render.progress import ProgressLine

if TYPE_CHECKING:
    from ...history.log_source import LogSource
    from ...history.replay import DecisionCheck, DecisionDifference


def replay(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A file that `tailrace log export` wrote. \\[default: the cluster's log]",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Decide again, and compare with the events in the log.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar=PLACE, help="The last event. \\[default: the end of the log]"),
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Stop after this number of differences.")] = 20,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Replay a log from its start and print the state hash; with --check, compare every decision with the log.

    --check computes what each leader decides from the state and at the time that its events name, and compares it with
    the events in the log. A difference means that this release decides differently. The command prints it with the
    state around it, and ends with exit code 11.
    """
    with find_source(home, bootstrap_servers, cluster_id, file) as source:
        checking, found, more = _replay(source, to, check=check, most=most)
        from ...history.time_travel import state_hash

        replica = checking.replica
        if check and checking.counts.events and not checking.counts.decided:
            raise CommandFailure(
                ExitCode.NOT_FOUND,
                f"nothing can be checked in {source.log.topic}: none of its {checking.counts.events:,} events is "
                "marked as a decision; an earlier release without such marks wrote them",
            )
        data = {
            "offset": replica.offset,
            "state_hash": state_hash(replica),
            "feature_level": replica.leadership.feature_level,
        }
    if output is Format.JSON:
        _print_json(data, checking, found, check=check, more=more)
    else:
        _print_text(data, checking, found, check=check, more=more)
    return ExitCode.DIFFERS if found else ExitCode.OK


def _replay(
    source: LogSource, to: str | None, *, check: bool, most: int
) -> tuple[DecisionCheck, list[DecisionDifference], bool]:
    """Returns the check after the last event, the differences, and whether there may be more differences."""
    from ...core.replica import tune_gc_for_replay
    from ...history.log_position import LogPosition, first_offset
    from ...history.replay import DecisionCheck
    from ...log.event_log import LogTruncated, read_to_end
    from ...snapshots.builder import all_roles
    from ...snapshots.recovery import restore_newest

    tune_gc_for_replay()
    replica = all_roles()
    if first_offset(source.log) > 0 and (
        source.store is None or restore_newest(replica, source.log, source.store) is None
    ):
        raise LogTruncated(source.log.topic, 0, first_offset(source.log))
    end = source.log.end() if to is None else source.at(LogPosition.parse(to)) + 1
    checking = DecisionCheck(replica)
    process = checking.check_record if check else checking.fold
    found: list[DecisionDifference] = []
    with ProgressLine(f"{'checks' if check else 'reads'} {source.log.topic}", end) as progress:
        for batch in read_to_end(source.log, replica.offset + 1, end=end):
            for record in batch:
                found += process(record)
            progress(batch[-1].offset + 1)
            if len(found) >= most:
                return checking, found[:most], True
    checking.finish()
    return checking, found, False


def _print_json(
    data: dict[str, Any], checking: DecisionCheck, found: list[DecisionDifference], *, check: bool, more: bool
) -> None:
    import msgspec

    if check:
        data["counts"] = checking.counts
        data["differences"] = [difference.as_data() for difference in found]
        data["complete"] = not more
    print_result(msgspec.json.encode(data).decode())


def _print_text(
    data: dict[str, Any], checking: DecisionCheck, found: list[DecisionDifference], *, check: bool, more: bool
) -> None:
    from ....infra.sanitize import escape_control_characters

    for difference in found:
        for line in difference.format_lines():
            print_result(escape_control_characters(line))
        print_result("")
    print_result(
        f"offset {data['offset']}  state hash {data['state_hash']}  feature level {data['feature_level']}"
    )
    if not check:
        return
    counts = checking.counts
    print_result(
        f"{counts.events:,} events, {counts.decided:,} of them decided in {counts.turns:,} turns: {len(found)} "
        f"{'difference' if len(found) == 1 else 'differences'}{', and maybe more later' if more else ''}"
    )
    skipped = [
        f"{count:,} {what}"
        for count, what in (
            (counts.fenced, "fenced (their sender was a deposed leader)"),
            (counts.cut_off, "incomplete (a leader died before it sent all its messages)"),
            (counts.too_old, "decided on states that are too old to be kept"),
        )
        if count
    ]
    if skipped:
        print_result(f"not compared: {'; '.join(skipped)}")
    if counts.hashes:
        print_result(f"{counts.hashes:,} state hashes of leaders compared")
