"""Which options may change while a job runs, and why the others may not.

An option is dynamic if only masters read it, with each decision anew: no task, no topic and no file depends on the
value that the job was started with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...infra.config.options import shown, unknown
from ...pipelines.graph.job_options import BY_KEY, CHECKPOINT_INTERVAL, ORDERED
from .options import BY_KEY as ALL_OPTIONS

DYNAMIC = tuple(key for key, option in BY_KEY.items() if option.is_dynamic)


def find_change_error(configuration: Mapping[str, str], removed: Collection[str]) -> str | None:
    """Returns why the options of a job that runs can't change so, as one line; else None."""
    if not configuration and not removed:
        return "no option is named"
    for key in (*configuration, *removed):
        if (fault := _find_fault(key)) is not None:
            return fault
        if key in configuration and key in removed:
            return f"{key} can't be both set and removed"
    for key, text in configuration.items():
        try:
            value = BY_KEY[key].read(text)
        except ValueError as error:
            return str(error)
        if value is None and key == CHECKPOINT_INTERVAL.key:
            return f"{key} can't become `off` while the job runs: {_RUN_AGAIN}"
    for pair in ORDERED:
        is_known = pair.smaller.key in configuration and pair.larger.key in configuration
        if is_known and (contradiction := pair.find_error(configuration)) is not None:
            return contradiction
    return None


_RUN_AGAIN = (
    "stop the job with a savepoint, and run it from there with the new value (`tailrace stop`, `run -s`)"
)


def _find_fault(key: str) -> str | None:
    option = BY_KEY.get(key)
    if option is not None:
        return None if option.is_dynamic else f"{key} can't change while the job runs: {_RUN_AGAIN}"
    if key in ALL_OPTIONS:
        return f"{key} is an option of the cluster's processes: change their configuration, and restart them one by one"
    return unknown(key, DYNAMIC) if len(key) < 200 else f"there is no option {shown(key)}"
