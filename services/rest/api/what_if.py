"""What-ifs: GET /api/v1/what-if simulates how the history continues from a moment with the changes of a scenario."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.responses import Response

from ....infra.interpreter import module_command
from ...history.log_source import OpenSource
from ..endpoint import Endpoint, Parameter, Parameters
from ..errors import NotFound
from ..process_stream import ProcessRunner
from .what_if_result import WhatIfUpdate

MAX_TIME_S: Final = 120.0
MAX_MEMORY_BYTES: Final = 2 << 30
MAX_SIMULATED_EVENTS: Final = 500_000
INSTEAD: Final = "give a shorter time (until), or use `tailrace what-if`"
_PROCESS: Final = module_command("tailrace.services.simulation.what_if.process")


class WhatIfRequest(msgspec.Struct, frozen=True):
    """What the process gets. `at`: an offset or time; None: the end of the log."""

    open_source: OpenSource
    at: str | None
    scenario: str


class WhatIfRunner:
    """Runs simulations. `open_source` opens the log, and can be pickled."""

    def __init__(
        self, open_source: OpenSource, command: Sequence[str] = _PROCESS, max_time_s: float = MAX_TIME_S
    ) -> None:
        self._open_source = open_source
        self._runner = ProcessRunner("simulation", command, WhatIfUpdate, max_time_s, INSTEAD)

    async def open(self, parameters: Parameters, _last_event_id: str | None) -> Response:
        """GET /what-if: simulates how the history continues with the changes of a scenario, beside what happened"""
        return await self._runner.open(
            WhatIfRequest(self._open_source, parameters.get("at"), parameters.get("scenario", ""))
        )


def create_endpoint(open_source: OpenSource) -> Endpoint:
    """Returns the endpoint."""
    return Endpoint(
        "GET",
        "/what-if",
        query=(
            Parameter("at", str, "From this offset or time on; by default from the end of the log."),
            Parameter("scenario", str, "The changes as YAML, as `tailrace what-if` takes them."),
        ),
        stream=WhatIfRunner(open_source).open,
        stream_doc="Server-sent events: `progress` while it runs, and at last `result` or `error`.",
        response=WhatIfUpdate,
        errors=(NotFound,),
    )
