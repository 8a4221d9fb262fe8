"""The options of CSV files that a graph may have, as texts by name.

The API makes them, the runtime reads them. `header`: whether the first line has the names of the columns. `multiline`:
whether a value in quotes may have line breaks; then a file cannot be divided. `null`: the text of a missing value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec


class CsvOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a CSV file is written."""

    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    """Empty: values have no quotes."""
    null: str = ""
    multiline: bool = False


READ: Final = frozenset({"header", "delimiter", "quote", "null", "multiline"})
WRITTEN: Final = frozenset({"header", "delimiter"})


def to_csv_options(options: Mapping[str, str]) -> CsvOptions:
    """Returns the options. Raises msgspec.ValidationError."""
    return msgspec.convert(dict(options), CsvOptions, strict=False)


def find_csv_errors(options: Mapping[str, str], known: frozenset[str] = READ) -> Iterator[str]:
    """Yields what is wrong with the options."""
    for name in options:
        if name not in known:
            yield f"there is no option {name!r} of CSV files here, only {', '.join(sorted(known))}"
            return
    try:
        found = to_csv_options(options)
    except msgspec.ValidationError:
        yield "header and multiline are true or false"
        return
    for name, mark, least in (("delimiter", found.delimiter, 1), ("quote", found.quote, 0)):
        if not least <= len(mark) <= 1 or not mark.isascii() or mark in ("\r", "\n"):
            yield f"the option {name} is {mark!r}, not one ASCII character"
    if found.delimiter == found.quote:
        yield "delimiter and quote are the same character"
