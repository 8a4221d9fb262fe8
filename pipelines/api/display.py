"""How notebooks show streams, their rows, and programs: HTML and SVG without scripts, and plain text elsewhere.

Jupyter calls `_repr_html_` of the last object of a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final, Generic, TypeVar, overload

from ..types import ClassOf, RecordType, TupleOf
from .transformations import Partition, Physical, SideOutput, Transformation, Union

T = TypeVar("T")

_MOST_CHARACTERS: Final = 60
"""Of a value in a table."""
_STEP: Final = (230, 70)
"""The distance of two operators, in pixels."""
_BOX: Final = (170, 44)
_CELL: Final = 'style="text-align:left;vertical-align:top"'


class StreamRows(Sequence[T], Generic[T]):
    """Some records of a stream, shown as a table."""

    def __init__(self, records: Sequence[T], record_type: RecordType) -> None:
        self._records = records
        self._names = [name for name, _ in record_type.columns()]
        self._has_fields = isinstance(record_type, (TupleOf, ClassOf))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Iterable) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        lines = [self._names, *map(self._values, self._records)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self._names))]
        lines.insert(1, ["-" * width for width in widths])
        return "\n".join(
            "  ".join(value.ljust(width) for value, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        return _table(self._names, map(self._values, self._records))

    def _values(self, record: T) -> list[str]:
        """Returns the texts of a row. A record that is not of the declared type is the first one, as a whole."""
        if self._has_fields:
            if isinstance(record, tuple) and len(record) == len(self._names):
                return list(map(_short, record))
            if not isinstance(record, tuple) and all(hasattr(record, name) for name in self._names):
                return [_short(getattr(record, name)) for name in self._names]
        return [_short(record), *[""] * (len(self._names) - 1)]


def stream_html(kind: str, name: str, record_type: RecordType) -> str:
    """Returns a stream's name, and the fields of its records as a table."""
    fields = _table(["field", "type"], [[field, str(of)] for field, of in record_type.columns()])
    return f"<div><b>{escape(kind)}</b> {escape(name)}: {escape(str(record_type))}{fields}</div>"


def operator_name(transformations: Mapping[int, Transformation], transformation_id: int) -> str:
    """Returns the name of the operator that a stream's records come from."""
    found = transformations[transformation_id]
    while not isinstance(found, Physical):
        found = transformations[found.inputs[0]]
    return found.name


def program_svg(transformations: Mapping[int, Transformation], parallelism: int) -> str:
    """Returns the operators of a program and the edges between them as a drawing, sources on the left."""
    operators = {i: each for i, each in transformations.items() if isinstance(each, Physical)}
    edges = [
        (source, label, i)
        for i, each in operators.items()
        for given in each.inputs
        for source, label in _before(transformations, given)
    ]
    depths: dict[int, int] = {}
    for i in operators:  # inputs come before what reads them
        depths[i] = max((depths[source] + 1 for source, _, target in edges if target == i), default=0)
    rows: dict[int, int] = {}
    places: dict[int, tuple[int, int]] = {}
    for i, depth in depths.items():
        row = rows[depth] = rows.get(depth, -1) + 1
        places[i] = depth * _STEP[0] + 5, row * _STEP[1] + 15
    drawn = [_edge(places[source], places[target], label) for source, label, target in edges]
    drawn += [_operator(places[i], each, parallelism) for i, each in operators.items()]
    width = (max(depths.values(), default=0) + 1) * _STEP[0]
    height = (max(rows.values(), default=0) + 1) * _STEP[1]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif"'
        f' font-size="12">{"".join(drawn)}</svg>'
    )


def _before(transformations: Mapping[int, Transformation], source: int) -> list[tuple[int, str]]:
    """Returns the operators whose records come by way of a transformation, and what happens to them on the way."""
    found = transformations[source]
    match found:
        case Partition():
            return [(i, found.partitioner.value) for i, _ in _before(transformations, found.inputs[0])]
        case SideOutput():
            before = _before(transformations, found.inputs[0])
            return [(i, label or f"side output {found.tag}") for i, label in before]
        case Union():
            return [each for i in found.inputs for each in _before(transformations, i)]
        case _:
            return [(source, "")]


def _operator(at: tuple[int, int], of: Physical, parallelism: int) -> str:
    x, y = at
    wide, high = _BOX
    count = of.parallelism or (parallelism if of.parallel else 1)
    name = of.name if len(of.name) <= 26 else f"{of.name[:25]}…"
    return (
        f"<g><title>{escape(of.name)}, {escape(of.location or '')}</title>"
        f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="6" fill="#eef3fb" stroke="#4a6fa5"/>'
        f'<text x="{x + 8}" y="{y + 18}" fill="#1b2a41">{escape(name)}</text>'
        f'<text x="{x + 8}" y="{y + 35}" fill="#5b6b82">parallelism {count}</text></g>'
    )


def _edge(source: tuple[int, int], target: tuple[int, int], label: str) -> str:
    (x1, y1), (x2, y2) = (
        (source[0] + _BOX[0], source[1] + _BOX[1] // 2),
        (target[0], target[1] + _BOX[1] // 2),
    )
    middle = (x1 + x2) // 2
    at = f'x="{x1 + 3}" y="{(y1 + y2) // 2 - 6}"'
    text = f'<text {at} fill="#5b6b82" font-size="10">{escape(label.lower())}</text>'
    curve = f"M{x1},{y1} C{middle},{y1} {middle},{y2} {x2},{y2}"
    return f'<path d="{curve}" fill="none" stroke="#8899b0"/>{text if label else ""}'


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th {_CELL}>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td {_CELL}>{escape(value)}</td>' for value in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    line = " ".join(text.split())
    return line if len(line) <= _MOST_CHARACTERS else f"{line[: _MOST_CHARACTERS - 1]}…"
