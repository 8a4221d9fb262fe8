"""Programs as data and as calls of the API, with the topics and files that they read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
from pipelines.model import functions as f
from pipelines.model.interpreter import Item
from pipelines.model.rows import Row
from pipelines.model.steps import LOOSE, Rows, Step, written

from tailrace.pipelines.api import (
    ChainingStrategy,
    Formats,
    KafkaSource,
    SparkSource,
    StreamExecutionEnvironment,
)
from tailrace.pipelines.api.transformations import Physical
from tailrace.pipelines.testing.memory.cluster import give_uids
from tailrace.pipelines.types import RecordType

BEGIN_MS = 1_700_000_000_000
_CHAINING = {"new": ChainingStrategy.HEAD, "never": ChainingStrategy.NEVER}


@dataclass(frozen=True)
class Source:
    """`kind`: collection, loose (a collection of pickled rows), generator, files, orc, spark (files), custom (a class
    of its own), or text or json (of a topic)."""

    kind: str
    partitions: tuple[tuple[Row, ...], ...]
    """Of a topic; files; a collection is one. As many rows does a generator make."""
    disorder: int
    parallelism: int


@dataclass(frozen=True)
class Program:
    """`steps` refer to streams by number: first those of the sources, then those of the steps."""

    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    chaining: bool
    mini_batch: bool
    max_parallelism: int | None

    @property
    def is_typed(self) -> bool:
        """Returns whether no record is pickled."""
        loose = [step for step in self.steps if step.name == "stateless" and not step.arguments[1]]
        return not loose and all(source.kind != "loose" for source in self.sources)

    def rescaled(self, parallelism: Callable[[int], int]) -> Program:
        """Returns the program with another parallelism of each step."""

        def of(step: Step) -> Step:
            return dataclasses.replace(
                step, parallelism=None if step.parallelism is None else parallelism(step.parallelism)
            )

        sources = tuple(
            dataclasses.replace(source, parallelism=parallelism(source.parallelism))
            for source in self.sources
        )
        return dataclasses.replace(self, sources=sources, steps=tuple(map(of, self.steps)))

    def __repr__(self) -> str:
        lines = [f"{i}: {item!r}" for i, item in enumerate((*self.sources, *self.steps))]
        options = f"chaining={self.chaining} mini_batch={self.mini_batch} max={self.max_parallelism}"
        return "\n".join(("Program", *lines, options))


def write(
    program: Program, folder: Path, prefix: str = "", *, uids: bool = False
) -> StreamExecutionEnvironment:
    """Calls the API. Files are written into the folder; topics are named by the prefix and the source's number.

    `uids`: operators have the same ids at any parallelism.
    """
    env = StreamExecutionEnvironment()
    if not program.chaining:
        env.disable_operator_chaining()
    if program.mini_batch:
        env.configure("execution.mini-batch", "true")
    if program.max_parallelism:
        env.set_max_parallelism(program.max_parallelism)
    streams: list[Rows] = []
    for i, source in enumerate(program.sources):
        streams.append(_source(env, source, folder / str(i), f"{prefix}{i}"))
        _set(env, source.parallelism, "")
    for step in program.steps:
        streams.append(written(step, streams))
        _set(env, step.parallelism, step.chaining)
    if uids:
        give_uids(env)
    return env


def topics(program: Program, prefix: str = "") -> Mapping[str, Sequence[Sequence[tuple[int, bytes]]]]:
    """Returns the topics that the program reads: partitions of (timestamp, value)."""
    encode = {
        "text": lambda row: f.text_of(row).encode(),
        "json": lambda row: json.dumps(row._asdict()).encode(),
    }
    return {
        f"{prefix}{i}": [
            [(BEGIN_MS + row.at, encode[source.kind](row)) for row in partition]
            for partition in source.partitions
        ]
        for i, source in enumerate(program.sources)
        if source.kind in encode
    }


def decoded(program: Program, prefix: str = "") -> Mapping[str, Sequence[Sequence[Item]]]:
    """Returns the topics as the interpreter reads them."""
    return {
        f"{prefix}{i}": [
            [(BEGIN_MS + row.at, f.text_of(row) if source.kind == "text" else _own(row)) for row in partition]
            for partition in source.partitions
        ]
        for i, source in enumerate(program.sources)
    }


def _own(row: Row) -> Row:
    """Converts a record to the row class of this program."""
    return Row(**row._asdict())


def _source(env: StreamExecutionEnvironment, source: Source, folder: Path, topic: str) -> Any:
    match source.kind:
        case "collection":
            return env.from_collection(list(map(_own, source.partitions[0])), Row)
        case "loose":
            return env.from_collection(list(map(_own, source.partitions[0])), LOOSE)
        case "generator":
            return env.generate(f.generated, count=len(source.partitions[0]))
        case "files":
            folder.mkdir(parents=True, exist_ok=True)
            paths = [folder / f"{n}.txt" for n in range(len(source.partitions))]
            for path, rows in zip(paths, source.partitions, strict=True):
                path.write_text("".join(f"{f.text_of(row)}\n" for row in rows))
            return env.read_text_file(*map(str, paths)).map(f.parsed)
        case "orc":
            folder.mkdir(parents=True, exist_ok=True)
            schema = RecordType.of(Row).schema()
            paths = [folder / f"{n}.orc" for n in range(len(source.partitions))]
            for path, rows in zip(paths, source.partitions, strict=True):
                orc.write_table(pa.Table.from_pylist([f.fields_of(_own(row)) for row in rows], schema), path)
            return env.read_orc(*map(str, paths), output_type=Row)
        case "spark":
            folder.mkdir(parents=True, exist_ok=True)
            paths = [folder / f"{n}.json" for n in range(len(source.partitions))]
            for path, rows in zip(paths, source.partitions, strict=True):
                path.write_text("".join(f"{json.dumps(f.fields_of(_own(row)))}\n" for row in rows))
            return env.from_source(SparkSource("json", *map(str, paths), output_type=Row))
        case "custom":
            partitions = [[(BEGIN_MS + row.at, _own(row)) for row in rows] for rows in source.partitions]
            return env.from_source(f.Partitions(partitions))
        case "text":
            return env.from_source(KafkaSource(topic, Formats.text(), bounded=True)).map(f.parsed)
        case _:
            return env.from_source(KafkaSource(topic, Formats.json(), bounded=True, output_type=Row))


def _set(env: StreamExecutionEnvironment, parallelism: int | None, chaining: str) -> None:
    """Sets the options of all operators that were created since the last call."""
    for transformation in list(env._program.transformations.values()):
        if (
            isinstance(transformation, Physical)
            and transformation.parallelism is None
            and parallelism is not None
        ):
            changes: dict[str, Any] = {"parallelism": parallelism if transformation.parallel else 1}
            if chaining:
                changes["chaining"] = _CHAINING[chaining]
            env._program.change(transformation.id, **changes)
