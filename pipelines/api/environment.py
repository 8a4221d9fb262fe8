"""StreamExecutionEnvironment: where a program begins and ends (document 004)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NoReturn

from ...schemas.types import JobGraph
from ..graph.errors import ProgramError
from ..graph.job_graph import job_graph_of
from ..graph.stream_graph import StreamGraph
from ..types import RecordType
from .executor import JobClient, JobExecutionResult, current_context, current_executor
from .generator import Defaults, stream_graph_of
from .streams import DataStream, check_count
from .transformations import Physical, SocketTextStream, Transformation
from .user_code import caller_location


class StreamExecutionEnvironment:
    """Collects what a program asks for, and has it run."""

    def __init__(
        self,
        *,
        parallelism: int = 1,
        max_parallelism: int | None = None,
        configuration: Mapping[str, str] | None = None,
    ) -> None:
        """`max_parallelism`: None for 128 or, above a parallelism of 85, what fits. See also `-p` of `tailrace run`."""
        check_count("parallelism", parallelism, operator="StreamExecutionEnvironment")
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._chaining = True
        self._configuration = dict(configuration or {})
        self._transformations: dict[int, Transformation] = {}
        self._pending: list[int] = []
        if max_parallelism is not None:
            self.set_max_parallelism(max_parallelism)

    @staticmethod
    def get_execution_environment(
        configuration: Mapping[str, str] | None = None,
    ) -> StreamExecutionEnvironment:
        """An environment with the settings the program was started with (such as `-p`)."""
        context = current_context()
        if context is None:
            return StreamExecutionEnvironment(configuration=configuration)
        return StreamExecutionEnvironment(
            parallelism=context.parallelism or 1,
            configuration={**context.configuration, **(configuration or {})},
        )

    @property
    def parallelism(self) -> int:
        """The parallelism of operators that do not set their own."""
        return self._parallelism

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Sets the parallelism of operators that do not set their own."""
        check_count("parallelism", parallelism, operator="set_parallelism")
        self._parallelism = parallelism
        return self

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Sets the number of key groups of operators that do not set their own."""
        check_count("maximum parallelism", max_parallelism, operator="set_max_parallelism")
        self._max_parallelism = max_parallelism
        return self

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Each operator becomes a task by itself."""
        self._chaining = False
        return self

    def configure(self, key: str, value: str) -> StreamExecutionEnvironment:
        """A setting of the job, such as `execution.mode`."""
        self._configuration[key] = value
        return self

    def socket_text_stream(
        self, host: str, port: int, delimiter: str = "\n", max_retries: int = 0
    ) -> DataStream[str]:
        """The text a server at host:port sends, cut at the delimiter, which is dropped; parallelism 1.

        While the server cannot be reached, the source tries again up to `max_retries` times, half a second
        apart (-1: without end), and then fails. Once connected it does not connect again: when the server
        closes the connection the source is finished, and when the connection breaks it fails.
        """
        location = caller_location()
        _check_text("host", host, location)
        _check_text("delimiter", delimiter, location)
        _check_integer("port", port, 1, 65535, location)
        _check_integer("max_retries", max_retries, -1, 2**31 - 1, location)
        source = self.add(
            SocketTextStream(
                id=self.new_id(),
                location=location,
                name="Source: Socket Stream",
                output_type=RecordType.of(str),
                parallelism=1,
                host=host,
                port=port,
                delimiter=delimiter,
                max_retries=max_retries,
            )
        )
        return DataStream(self, source)

    def get_stream_graph(self, job_name: str = "tailrace job") -> StreamGraph:
        """The program so far, from the last `execute` on. Raises ProgramError."""
        defaults = Defaults(
            parallelism=self._parallelism,
            max_parallelism=self._max_parallelism,
            chaining=self._chaining,
            configuration=self._configuration,
        )
        return stream_graph_of(job_name, self._transformations, self._pending, defaults)

    def get_job_graph(self, job_name: str = "tailrace job") -> JobGraph:
        """The program so far as it would be submitted. Raises ProgramError."""
        return job_graph_of(self.get_stream_graph(job_name))

    def execute(self, job_name: str = "tailrace job") -> JobExecutionResult:
        """Has the job run and, unless it runs detached, waits for its end. Raises ProgramError."""
        return self.execute_async(job_name).result()

    def execute_async(self, job_name: str = "tailrace job") -> JobClient:
        """Has the job run; returns when it is accepted. Raises ProgramError."""
        _check_text("job_name", job_name, caller_location(), operator="execute")
        executor = current_executor()
        graph = self.get_job_graph(job_name)
        self._pending.clear()
        return executor.execute(graph)

    def new_id(self) -> int:
        """The id of the next transformation."""
        return len(self._transformations) + 1

    def add(self, transformation: Transformation) -> int:
        """Adds a transformation and returns its id; for streams to build with."""
        self._transformations[transformation.id] = transformation
        if isinstance(transformation, Physical):
            self._pending.append(transformation.id)
        return transformation.id

    def transformation(self, transformation_id: int) -> Transformation:
        """A transformation as it is now."""
        return self._transformations[transformation_id]

    def change(self, transformation_id: int, **changes: Any) -> None:
        """Replaces a transformation by a changed copy."""
        self._transformations[transformation_id] = dataclasses.replace(
            self._transformations[transformation_id], **changes
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a StreamExecutionEnvironment exists only in the program that describes the job")


def _check_text(name: str, value: object, location: str, *, operator: str = "socket_text_stream") -> None:
    if not isinstance(value, str) or not value:
        raise ProgramError(
            f"{name} is {value!r}, not one or more characters", operator=operator, location=location
        )


def _check_integer(name: str, value: object, least: int, most: int, location: str) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ProgramError(
            f"{name} is {value!r}, not an integer from {least} to {most}",
            operator="socket_text_stream",
            location=location,
        )
