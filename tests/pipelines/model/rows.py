"""The row class of random programs, and the classes that may replace it when a program is restored.

A replacement has the same name. Its fields may be in another order; one may be new with a default, `int` may become
`float`, and a value may become optional. It may be a dataclass. The text of a row is the same for all classes, unless a
field has a wrong value.
"""

from __future__ import annotations

import dataclasses
import random
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import Any, NamedTuple

TAG = "tag"
NOTES: Mapping[str, Any] = {"text": "note", "list": [3, 4]}
"""The new field's types and defaults."""
ORDERS = (
    ("key", "number", "at", "tag", "note"),
    ("note", "tag", "at", "number", "key"),
    ("number", "note", "key", "tag", "at"),
)
Number = int


def text_of_row(row: Any) -> str:
    text = f"{row.key},{int(row.number)},{row.at}"
    note = getattr(row, "note", None)
    wrong = row.tag != TAG or (note is not None and note not in NOTES.values())
    return f"{text}, tag {row.tag!r}, note {note!r}" if wrong else text


class Row(NamedTuple):
    key: str = ""
    number: Number = 0
    at: int = 0
    """Event time, small."""
    tag: str = TAG

    def __str__(self) -> str:
        return text_of_row(self)


@dataclass(frozen=True)
class Version:
    """A version of the class; the default is `Row`."""

    order: tuple[str, ...] = ORDERS[0]
    note: str = ""
    """Of `NOTES`; empty: there is no such field."""
    wide: bool = False
    """Whether numbers are floats."""
    optional: bool = False
    """Whether the tag is."""
    is_dataclass: bool = False

    @property
    def number_type(self) -> type:
        return float if self.wide else int

    def row_class(self) -> type:
        hints: dict[str, Any] = {"key": str, "number": self.number_type, "at": int}
        hints["tag"] = (str | None) if self.optional else str
        defaults: dict[str, Any] = {**Row._field_defaults, "note": NOTES.get(self.note)}
        hints["note"] = list[int] if self.note == "list" else str
        names = [name for name in self.order if name != "note" or self.note]
        if self.is_dataclass:
            fields = [(name, hints[name], field(default_factory=_Default(defaults[name]))) for name in names]
            methods: dict[str, Any] = {"__str__": text_of_row, "_replace": dataclasses.replace}
            made = make_dataclass("Row", fields, namespace=methods)
            made.__module__ = __name__
            return made
        body = {name: defaults[name] for name in names}
        own = {"__annotations__": {name: hints[name] for name in names}, "__str__": text_of_row}
        return types.new_class(
            "Row", (NamedTuple,), {}, lambda space: space.update({"__module__": __name__, **own, **body})
        )

    def next(self, rng: random.Random) -> Version:
        """Draws a version that can read rows of this one."""
        notes = [self.note, ""] if self.note else ["", *NOTES]
        return Version(
            rng.choice(ORDERS),
            rng.choice(notes),
            self.wide or rng.random() < 0.5,
            self.optional or rng.random() < 0.5,
            rng.random() < 0.5,
        )


@dataclass(frozen=True)
class _Default:
    value: Any

    def __call__(self) -> Any:
        return self.value
