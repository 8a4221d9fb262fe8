"""The output of a benchmark: a table, and `out/NAME.json` for comparisons of runs.

`{"name", "conditions", "figures": {key: number}}`; units are in the keys (`_ms`, `_per_s`, `_mib`), and the raw limit
or peer of the same run is among the figures.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from _scale import SCALE
from rich.console import Console
from rich.table import Table

OUT = Path(__file__).parent / "out"


def median(values: Sequence[float]) -> float:
    """Returns the median."""
    return statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns the smallest value that `percent` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def conditions(**more: object) -> dict[str, object]:
    """Returns the conditions that the figures depend on."""
    return {
        "cpus": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "confluent_kafka": version("confluent-kafka"),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **more,
    }


def report(
    name: str,
    figures: Mapping[str, float],
    under: Mapping[str, object],
    notes: Mapping[str, str] | None = None,
) -> None:
    """Prints the table and, for a run of full size, writes the file.

    `notes` explain figures by key, or name what they are compared with.
    """
    table = Table("figure", "value", "what it is", title=name, title_justify="left")
    table.columns[1].justify = "right"
    for key, value in figures.items():
        table.add_row(
            key, f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}", (notes or {}).get(key, "")
        )
    console = Console(width=None if Console().is_terminal else 120)
    console.print(table)
    console.print(", ".join(f"{key} {value}" for key, value in under.items()), style="dim", highlight=False)
    if SCALE != 1:
        return
    OUT.mkdir(exist_ok=True)
    text = json.dumps({"name": name, "conditions": dict(under), "figures": dict(figures)}, indent=2)
    (OUT / f"{name}.json").write_text(text + "\n", "utf-8")
