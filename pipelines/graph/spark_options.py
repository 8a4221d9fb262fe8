"""The options of Spark's readers and writers that a graph may have.

Options that decide which rows there are, or where, are the source's and the sink's own. Secrets are refused, because
the graph stays in the cluster's log for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ...infra.redaction import has_password

_OWN: Final = frozenset(
    {
        "path", "paths", "pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter", "__globpaths__",
        "ignoremissingfiles", "ignorecorruptfiles",
    }
)  # fmt: skip
"""In lower case: Spark does not tell cases apart."""


def find_option_errors(options: Mapping[str, str]) -> Iterator[str]:
    """Yields what is wrong with the options."""
    for name, value in options.items():
        if name.lower() in _OWN:
            yield f"the option {name} cannot be set: it would decide which rows there are, or where"
        elif name.lower() == "mode" and value.upper() not in ("FAILFAST", "PERMISSIVE"):
            yield f"the option {name} is {value!r}, not FAILFAST or PERMISSIVE: dropped rows would have no number"
        elif has_password(value) or "password" in name.lower() or "secret" in name.lower():
            yield (
                f"the option {name} would have a secret in the cluster's log for ever: configure the file system "
                "where the tasks run"
            )
