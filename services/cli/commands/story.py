"""`tailrace story`: shows the history of one entity, the causes of an event, or its effects."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..args.common_options import Format, Output
from ..args.log_source import DEFAULT_LOG, From, LogOptions, To, position_range
from ..exit_codes import CommandFailure, ExitCode
from ..readers.entity_history import annotate_log, build_entity_history, trace_causes, trace_effects
from ..render.output import print_result, print_table

if TYPE_CHECKING:
    from ...history.entity_history.event_annotator import EventAnnotator
    from ...history.entity_history.timeline import EntityHistoryBuilder
    from ...history.log_source import LogSource

_MAX_PER_KIND = 30
"""The number of entities listed per kind, newest last."""


def story(
    entity: Annotated[
        str | None,
        typer.Argument(
            metavar="ENTITY",
            help="The id, id prefix or name of a job, a task ('Source: x (1/4)', or an attempt id), a slot (te-1/0), "
            "an allocation, a TaskExecutor, a checkpoint (JOB/NUMBER), a role (dispatcher) or a client. Use KIND:ID if "
            "several match. Without ENTITY, the command lists the entities.",
        ),
    ] = None,
    job: Annotated[str | None, typer.Option("--job", "-j", help="The job of the task or checkpoint.")] = None,
    why: Annotated[
        int | None,
        typer.Option(
            "--why", min=0, metavar="OFFSET", help="Show the causes of this event, back to the first one."
        ),
    ] = None,
    effects: Annotated[
        int | None,
        typer.Option("--effects", min=0, metavar="OFFSET", help="Show the effects of this event, as a tree."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Show every event on its own line, and the whole tree.")
    ] = False,
    first: From = None,
    last: To = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new events.")] = False,
    output: Output = Format.TEXT,
    log_options: LogOptions = DEFAULT_LOG,
) -> int:
    """Show the history of one entity: its events in order, with sender, recipient, time and cause.

    `!` marks failures (`!!` the first event of a failure). `x` marks events that all readers ignored, with the reason.
    """
    _check(entity, job, why, effects, last, follow, log_options.file is not None)
    with log_options.open() as source:
        if why is not None:
            return _print_causes(source, why, output, everything=everything)
        start, end = position_range(source, first, last)
        if effects is not None:
            return _effects(source, effects, end, output, everything=everything)
        if entity is None:
            return _list(source, end, output, everything=everything)
        from ...history.entity_history.entity_lookup import EntityQuery

        wanted = EntityQuery(entity, job)
        timeline, annotator = build_entity_history(source, wanted, start, end, everything=everything)
        return _print_history(
            source, timeline, annotator, output, end if follow else None, everything=everything
        )


def _check(
    entity: str | None,
    job: str | None,
    why: int | None,
    effects: int | None,
    last: str | None,
    follow: bool,
    of_file: bool,
) -> None:
    given = [
        name
        for name, value in (("ENTITY", entity), ("--why", why), ("--effects", effects))
        if value is not None
    ]
    if len(given) > 1:
        raise CommandFailure(ExitCode.USAGE, f"{' and '.join(given)} exclude each other: use one of them")
    if entity is not None and not entity.strip():
        raise CommandFailure(ExitCode.USAGE, "ENTITY is empty: `tailrace story` lists the entities")
    if job is not None and entity is None:
        raise CommandFailure(ExitCode.USAGE, "--job needs an ENTITY: name a task or checkpoint of that job")
    if not follow:
        return
    if entity is None:
        raise CommandFailure(ExitCode.USAGE, "--follow needs an ENTITY: name one")
    if of_file:
        raise CommandFailure(
            ExitCode.USAGE, "--follow and --file exclude each other: a file gets no new events"
        )
    if last is not None:
        raise CommandFailure(ExitCode.USAGE, "--follow and --to exclude each other")


def _print_history(
    source: LogSource,
    timeline: EntityHistoryBuilder,
    annotator: EventAnnotator,
    output: Format,
    follow_from: int | None,
    *,
    everything: bool,
) -> int:
    from ..render import entity_history

    found = timeline.build()
    if output is Format.JSON:
        _json(found)
    page = entity_history.Page()
    if output is Format.TEXT:
        entity_history.print_head(page, found)
        entity_history.print_body(page, found.lines, everything=everything)
        if follow_from is None:
            entity_history.print_end(page, found)
    if follow_from is None:
        return ExitCode.OK
    before = found.lines[-1] if found.lines else None
    tail = source.log.tail(follow_from)
    try:
        while True:
            for record in tail.poll(0.5):
                event = annotator.annotate(record)
                if timeline.entity not in event.entities:
                    continue
                for line in timeline.next(event):
                    if output is Format.JSON:
                        _json(line)
                    else:
                        entity_history.print_body(page, [line], before)
                    before = line
    finally:
        tail.close()


def _print_causes(source: LogSource, offset: int, output: Format, *, everything: bool) -> int:
    from ..render import entity_history

    _check_offset(source, offset)
    found = trace_causes(source, offset)
    if output is Format.JSON:
        _json(found)
    else:
        entity_history.print_causes(entity_history.Page(), found, everything=everything)
    return ExitCode.OK


def _effects(source: LogSource, offset: int, end: int, output: Format, *, everything: bool) -> int:
    from ..render import entity_history

    _check_offset(source, offset)
    if offset >= end:
        raise CommandFailure(ExitCode.NOT_FOUND, f"offset {offset} is after --to, which is offset {end - 1}")
    found = trace_effects(source, offset, end, everything=everything)
    tree = found.tree()
    if output is Format.JSON:
        fields = {name: getattr(tree, name) for name in tree.__struct_fields__}
        _json({"count": found.count, "last": found.last, **fields})
    else:
        entity_history.print_effects(entity_history.Page(), tree, found.count, found.last)
    return ExitCode.OK


def _list(source: LogSource, end: int, output: Format, *, everything: bool) -> int:
    """Lists the entities."""
    from ...history.entity_history.entities import EntityKind

    annotator = annotate_log(source, end)
    lives = annotator.entities.lives
    if output is Format.JSON:
        _json(
            [
                {"kind": entity.kind.value, "id": entity.id, "names": life.names, "events": life.events,
                 "first": life.first, "last": life.last}
                for entity, life in lives.items()
            ]
        )  # fmt: skip
        return ExitCode.OK
    rows: dict[EntityKind, list[list[str]]] = {
        kind: [] for kind in EntityKind if kind is not EntityKind.ALLOCATION
    }
    for entity, life in lives.items():
        if entity.kind in rows:
            name = life.names[0] if life.names and entity.kind in (EntityKind.JOB, EntityKind.TASK) else ""
            shown = (entity.job or "") if entity.kind is EntityKind.TASK else entity.id
            rows[entity.kind].append(
                [entity.kind.value, shown, name, f"{life.events:,}", str(life.first), str(life.last)]
            )
    most = len(lives) if everything else _MAX_PER_KIND
    print_table(
        "Entities",
        ["KIND", "ID", "NAME", "EVENTS", "FIRST", "LAST"],
        [row for of_kind in rows.values() for row in of_kind[-most:]],
    )
    older = {kind.value: len(of_kind) - most for kind, of_kind in rows.items() if len(of_kind) > most}
    if older:
        counts = ", ".join(f"{count:,} {kind}{'' if count == 1 else 's'}" for kind, count in older.items())
        print_result(f"and older ones: {counts} (--all shows them)")
    return ExitCode.OK


def _check_offset(source: LogSource, offset: int) -> None:
    from ...history.log_position import LogExtent, PositionOutOfRange

    extent = LogExtent.from_log(source.log)
    if not extent.first <= offset < extent.end:
        raise PositionOutOfRange(f"offset {offset} is outside {extent.format_extent(source.log)}")


def _json(value: Any) -> None:
    import msgspec

    print_result(msgspec.json.encode(value).decode())
    sys.stdout.flush()
