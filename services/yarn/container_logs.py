"""The logs of running containers, from the web servers of their NodeManagers (their REST API)."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Final

import msgspec

from .application import RunningContainer
from .errors import YarnError

_TIMEOUT_S: Final = 30.0


class _File(msgspec.Struct, frozen=True, rename="camel"):
    file_name: str


class _Files(msgspec.Struct, frozen=True, rename="camel"):
    container_log_info: tuple[_File, ...] = ()


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    container_logs_info: _Files = _Files()


def read_running_logs(container: RunningContainer) -> Iterator[str]:
    """Yields the log files of a container that runs, each with a header, as `yarn logs` shows them. Raises
    YarnError."""
    url = f"{container.node_url}/ws/v1/node"
    answer = _get(f"{url}/containers/{container.container_id}/logs", "application/json")
    try:
        files = msgspec.json.decode(answer, type=_Answer).container_logs_info.container_log_info
    except msgspec.MsgspecError as error:
        raise YarnError(
            f"the NodeManager at {url} lists no logs of {container.container_id}: {error}"
        ) from error
    for file in sorted(files, key=lambda each: each.file_name):
        text = _get(f"{url}/containerlogs/{container.container_id}/{file.file_name}", "text/plain")
        yield text.decode(errors="replace")


def _get(url: str, accept: str) -> bytes:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers={"Accept": accept}), timeout=_TIMEOUT_S
        ) as answer:
            return bytes(answer.read())
    except (urllib.error.URLError, OSError) as error:
        raise YarnError(f"the NodeManager does not give a log: {url}: {error}") from error
