"""What a REST server reads from the diagnostics servers of other processes for one request: logs and stacks.

The log has the addresses. /jobmanager is the process that leads the Dispatcher, as in Flink, whichever server is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from ...infra import threads
from ...schemas.types import ExecutionState
from ..core.role import DISPATCHER
from ..diagnostics.client import (
    DiagnosticsClient,
    DiagnosticsNotFound,
    DiagnosticsUnavailable,
    Reply,
    ServerAddress,
)
from ..diagnostics.logs import LOG, LOGS, NEXT_HEADER, OFFSET_HEADER, STDOUT, LogFile
from ..diagnostics.server import ENDPOINT
from ..diagnostics.stacks import STACKS, Stack
from ..diagnostics.threads import THREADS, ThreadInfo
from .endpoint import Answer, Endpoint, Parameter, Parameters, Text
from .errors import NotFound, RestError, Unavailable
from .flink.endpoints import path_parameters
from .flink.flamegraph import FlameGraph, FlameGraphType, create_flame_graph
from .flink.lookup import find_attempts, find_graph, find_job, find_vertex
from .flink.taskmanagers import diagnostics_addresses
from .moment import Moment

T = TypeVar("T")
Read = Callable[[], AbstractContextManager[Moment]]
"""Returns the present."""
Find = Callable[[str | None], ServerAddress]
"""Returns the address of the server of a TaskExecutor, by its resource id; None: of the leading jobmanager."""
_OFFSET: Final = Parameter(
    "offset",
    int,
    "Only the lines from this byte on; a negative number counts from the end. The header Tailrace-Log-Next of an "
    "answer is the offset of the next one. Without it: the last 4 MiB.",
    minimum=-(2**62),
    maximum=2**62,
)
FindVertex = Callable[[Parameters, int | None], tuple[str, str, Sequence[ServerAddress]]]
"""(parameters, subtask) -> the job, the vertex, and the addresses of the servers of its TaskExecutors."""
_TIMEOUT_S: Final = 5.0
_SAMPLES_TIMEOUT_S: Final = 10.0
_MOST_THREADS: Final = 32
_NOTHING_RUNS: Final = -1
_FLAME_GRAPH: Final = "/jobs/{jobid}/vertices/{vertexid}/flamegraph"
_TASKMANAGER: Final = "/taskmanagers/{taskmanagerid}"
_JOBMANAGER: Final = "/jobmanager"


class LogList(msgspec.Struct, frozen=True):
    """Flink's LogListInfo."""

    logs: Sequence[LogFile]


class ThreadDump(msgspec.Struct, frozen=True, rename="camel"):
    """Flink's ThreadDumpInfo."""

    thread_infos: Sequence[ThreadInfo]


class Diagnostics:
    """The processes of a cluster, as a REST server asks them."""

    def __init__(self, client: DiagnosticsClient, find: Find, find_vertex: FindVertex) -> None:
        self._client = client
        self._find = find
        self._find_vertex = find_vertex

    @classmethod
    def from_moments(cls, client: DiagnosticsClient, read: Read) -> Diagnostics:
        """Returns the processes that the log names. `read` returns the present."""
        return cls(
            client,
            lambda resource_id: find_address(read, resource_id),
            lambda parameters, subtask: find_vertex_addresses(read, parameters, subtask),
        )

    def logs(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """The list of the log files of the process"""
        return Answer(LogList(self._read_json(parameters, LOGS, list[LogFile])), 200)

    def log(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """The log of the process"""
        return self._text(parameters, LOG)

    def stdout(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """What the process has written to stdout"""
        return self._text(parameters, STDOUT)

    def log_file(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """One of the log files of the process"""
        return self._text(parameters, f"{LOGS}/{quote(parameters['logname'], safe='')}")

    def thread_dump(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """What the threads of the process do now"""
        return Answer(ThreadDump(self._read_json(parameters, THREADS, list[ThreadInfo])), 200)

    def flame_graph(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """What the subtasks of a vertex do, in samples of one second"""
        subtask = parameters.get("subtaskindex")
        job_id, vertex_id, addresses = self._find_vertex(parameters, subtask)
        query = {"job": job_id, "vertex": vertex_id} | ({} if subtask is None else {"subtask": subtask})
        path = f"{STACKS}?{urlencode(query)}"

        def ask(address: ServerAddress) -> list[Stack] | RestError:
            try:
                return self._decode(self._ask(address, path, _SAMPLES_TIMEOUT_S), list[Stack])
            except RestError as error:
                return error

        if not addresses:
            return Answer(FlameGraph(_NOTHING_RUNS), 200)
        with threads.Pool(min(_MOST_THREADS, len(addresses)), "flame graph") as pool:
            answers = list(pool.map(ask, addresses))
        known = [each for each in answers if not isinstance(each, RestError)]
        if not known:
            raise next(each for each in answers if isinstance(each, RestError))
        kind = parameters.get("type", FlameGraphType.FULL)
        stacks = [stack for each in known for stack in each]
        return Answer(create_flame_graph(stacks, kind, time.time_ns() // 1_000_000), 200)

    def _text(self, parameters: Parameters, path: str) -> Answer:
        offset = parameters.get("offset")
        query = "" if offset is None else f"?{urlencode({'offset': offset})}"
        reply = self._get(parameters, f"{path}{query}")
        names = (OFFSET_HEADER, NEXT_HEADER)
        headers = {name: reply.headers[name.lower()] for name in names if name.lower() in reply.headers}
        return Answer(Text(reply.body.decode("utf-8", "replace"), headers), 200)

    def _read_json(self, parameters: Parameters, path: str, kind: type[T]) -> T:
        return self._decode(self._get(parameters, path), kind)

    def _decode(self, reply: Reply, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(reply.body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Unavailable(
                f"The process gives an answer that is not understood: {error!s:.200}."
            ) from None

    def _get(self, parameters: Parameters, path: str) -> Reply:
        return self._ask(self._find(parameters.get("taskmanagerid")), path, _TIMEOUT_S)

    def _ask(self, address: ServerAddress, path: str, timeout_s: float) -> Reply:
        try:
            return self._client.get(address, f"/{path}", timeout_s)
        except DiagnosticsNotFound as error:
            raise NotFound(f"Not found: {error}.") from None
        except DiagnosticsUnavailable as error:
            raise Unavailable(f"{str(error)[:1].upper()}{str(error)[1:]}.", {"Retry-After": "5"}) from None


def find_address(read: Read, resource_id: str | None) -> ServerAddress:
    """Returns the address of the diagnostics server of a TaskExecutor, or of the leading jobmanager for None. Raises
    NotFound, Unavailable."""
    with read() as moment:
        if resource_id is None:
            leader = moment.fold.replica.leadership.leader(DISPATCHER)
            found = (
                ServerAddress("", "")
                if leader is None
                else ServerAddress(leader.endpoints.get(ENDPOINT, ""), leader.address)
            )
            who = "The leading jobmanager"
        else:
            known = diagnostics_addresses(moment)
            if resource_id not in known:
                raise NotFound(f"No TaskExecutor registered under {resource_id[:80]}.")
            found, who = known[resource_id], "The TaskExecutor"
    if not found.address:
        raise Unavailable(f"{who} has no diagnostics server: set blob.secret-file.", {"Retry-After": "60"})
    return found


def find_vertex_addresses(
    read: Read, parameters: Parameters, subtask: int | None
) -> tuple[str, str, list[ServerAddress]]:
    """Returns the job, the vertex, and the addresses of the TaskExecutors on which its subtasks run, or one of them.
    Raises NotFound."""
    with read() as moment:
        _, view = find_job(moment, parameters)
        graph = find_graph(moment, view)
        vertex = find_vertex(graph, parameters)
        workers = {
            each.resource_id
            for each in find_attempts(graph, vertex)
            if each.state is ExecutionState.RUNNING and subtask in (None, each.subtask_index)
        }
        known = diagnostics_addresses(moment)
    addresses = {known[worker] for worker in workers if worker in known}
    return view.job_id, vertex.vertex_id, sorted(each for each in addresses if each.address)


def diagnostics_endpoints(diagnostics: Diagnostics) -> list[Endpoint]:
    """Returns Flink's endpoints of logs and thread dumps."""
    found = [
        Endpoint(
            "GET",
            _FLAME_GRAPH,
            path_parameters(_FLAME_GRAPH),
            (
                Parameter("type", FlameGraphType, "Which samples: full, on_cpu, off_cpu."),
                Parameter("subtaskindex", int, "One subtask; all without it.", minimum=0, maximum=2**31 - 1),
            ),
            command=diagnostics.flame_graph,
            response=FlameGraph,
            errors=(NotFound,),
        )
    ]
    for prefix in (_JOBMANAGER, _TASKMANAGER):
        commands: Sequence[tuple[str, Callable[..., Answer], Any, Sequence[Parameter]]] = (
            ("/logs", diagnostics.logs, LogList, ()),
            ("/logs/{logname}", diagnostics.log_file, Text, (_OFFSET,)),
            ("/log", diagnostics.log, Text, (_OFFSET,)),
            ("/stdout", diagnostics.stdout, Text, (_OFFSET,)),
            ("/thread-dump", diagnostics.thread_dump, ThreadDump, ()),
        )
        for path, command, response, query in commands:
            found.append(
                Endpoint(
                    "GET",
                    prefix + path,
                    path_parameters(prefix + path),
                    query,
                    command=command,
                    response=response,
                    errors=(NotFound,),
                )
            )
    return found
