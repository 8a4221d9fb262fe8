"""Writes docs/configuration.md from the table of options, which is the source of truth.

`python -m tailrace.services.configuration.document` rewrites it; `--check` writes nothing and exits with 1 where the
file differs from what would be written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...infra.config.options import ConfigOption, Scope
from . import options
from .options.external_resources import EXTERNAL_RESOURCE_AMOUNT, EXTERNAL_RESOURCES
from .sources import FILE

PATH = Path(__file__).parents[2] / "docs" / "configuration.md"

_HEAD = f"""# Configuration

Written by `make configuration` from the tables in `services/configuration/options`; change them, not this.

Keys and defaults are Flink's where Flink has the concept; a key with a ° is tailrace's own, and where a default differs
from Flink's, Flink's is named. `tailrace config` shows what holds here, and where each value was set.

An option is set in one of these places; a later one outranks an earlier one:

1. `{FILE}` in the home (`.tailrace` of the current directory, `--home`, or `TAILRACE_HOME`), flat or nested:

       heartbeat.timeout: 20 s
       restart-strategy:
         type: fixed-delay
         fixed-delay.attempts: 3

2. the environment: `TAILRACE_` and the key in upper case, with `_` for `.` and `-`, such as
   `{options.environment_variable("heartbeat.timeout")}`;
3. the command line: `-D heartbeat.timeout=20s`, as often as needed, for `cluster start`, `jobmanager` and
   `taskexecutor`, and options of their own such as `--slots`. `tailrace run -D KEY=VALUE` sets options of that job.

A key that is none, a value that cannot be, and values that contradict each other are refused at the start, with the
nearest key or what the value may be, and exit code 2; a job whose configuration has them is rejected. `cluster start`
hands its configuration to all that it starts, and what its command line has set holds until `cluster stop`.

The leading jobmanager says in the log what masters and jobs go by (`ConfigurationChanged`: all options that are read by
jobmanager or job, defaults too; never addresses, and of paths only where checkpoints are), and goes by what the log
says: what a cluster has decided can be decided again from its log alone. A job goes by its own options, then by what
the cluster's configuration said of jobs when it started.

A **duration** is a whole number and a unit (`d`, `h`, `min`, `s`, `ms`, `us`); without a unit, milliseconds. A **memory
size** is a whole number and a unit (`tb`, `gb`, `mb`, `kb`, `b`; 1 kb is 1024 b); without a unit, bytes. `auto` is what
the machine has.
"""


def render_document() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, group in options.GROUPS.items():
        parts.append(f"## {title}\n\n{_table(group)}")
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Writes or, with `--check`, compares; returns the exit code."""
    wanted = render_document()
    if PATH.exists() and PATH.read_text("utf-8") == wanted:
        return 0
    name = f"{PATH.parent.name}/{PATH.name}"
    if "--check" in arguments:
        print(f"{name} is not what the table of options says: run `make configuration`")
        return 1
    PATH.write_text(wanted, "utf-8")
    print(f"wrote {name}")
    return 0


def _table(group: Iterable[ConfigOption[Any]]) -> str:
    rows = ["| key | default | may be | read by | |", "|---|---|---|---|---|"]
    for option in group:
        rows.append(_row(option))
        if option is EXTERNAL_RESOURCES:
            rows.append(_row(EXTERNAL_RESOURCE_AMOUNT))
    return "\n".join(rows) + "\n"


def _row(option: ConfigOption[Any]) -> str:
    default = option.write(option.default)
    shown = f"`{default}`" if default else "nothing"
    flink = f" (Flink: {option.flink})" if option.flink else ""
    own = "°" if option.ours else ""
    everyone = Scope.CLIENT in option.scopes
    readers = "all" if everyone else ", ".join(option.scopes)
    return f"| `{option.key}`{own} | {shown}{flink} | {option.brief} | {readers} | {option.doc} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
