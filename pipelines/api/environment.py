"""StreamExecutionEnvironment: creates sources and executes the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ...schemas.types import JobGraph
from ..flink_names import advise
from ..graph.job_graph import create_job_graph
from ..graph.job_options import MINI_BATCH, RUNTIME_MODE, RuntimeExecutionMode
from ..graph.stream_graph import StreamGraph
from .checks import is_text
from .display import program_svg
from .executor import (
    JobClient,
    JobExecutionResult,
    PipelineExecutor,
    collecting_executor,
    current_context,
    current_executor,
    local_executor,
)
from .generator import Defaults, create_stream_graph
from .program import Program
from .python_files import ShippedFiles
from .queries import check_view, run_query
from .sources import Sources, check_text
from .streams import DataStream
from .streams.settings import check_count, refusal
from .submission import check_size


class StreamExecutionEnvironment(Sources):
    """Collects the transformations of a program, and executes them as jobs."""

    def __init__(
        self,
        *,
        parallelism: int = 1,
        max_parallelism: int | None = None,
        configuration: Mapping[str, str] | None = None,
    ) -> None:
        """`max_parallelism`: None means 128, or more if the parallelism is above 85. See also `-p` of `tailrace
        run`."""
        check_count("parallelism", parallelism, operator="StreamExecutionEnvironment")
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._chaining = True
        self._configuration = dict(configuration or {})
        self._program = Program(lambda name: self._execute(name, collecting_executor))
        self._views: dict[str, DataStream[Any]] = {}
        self._executor: PipelineExecutor | None = None
        context = current_context()
        if context is None:
            self._shipped = ShippedFiles()
        else:
            self._shipped = ShippedFiles(context.python_files, context.python_path)
        if max_parallelism is not None:
            self.set_max_parallelism(max_parallelism)

    @staticmethod
    def get_execution_environment(
        configuration: Mapping[str, str] | None = None,
    ) -> StreamExecutionEnvironment:
        """Returns an environment with the settings that the program was started with (such as `-p`)."""
        context = current_context()
        if context is None:
            return StreamExecutionEnvironment(configuration=configuration)
        return StreamExecutionEnvironment(
            parallelism=context.parallelism or 1,
            configuration={**context.configuration, **(configuration or {})},
        )

    @staticmethod
    def local(
        parallelism: int = 1, configuration: Mapping[str, str] | None = None
    ) -> StreamExecutionEnvironment:
        """Returns an environment whose jobs run in this process, without a cluster and without Kafka; what they print
        appears on stdout. For notebooks and first steps."""
        env = StreamExecutionEnvironment(parallelism=parallelism, configuration=configuration)
        env._executor = local_executor(prints=True)
        return env

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

    def set_runtime_mode(self, mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Sets `execution.runtime-mode`: BATCH runs a program whose sources all end in stages."""
        modes = [each.value for each in RuntimeExecutionMode]
        if mode not in modes:
            raise refusal("set_runtime_mode", f"the mode is {mode!r}, not one of {', '.join(modes)}")
        return self.configure(RUNTIME_MODE.key, RuntimeExecutionMode(mode).value)

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Makes each operator a task of its own."""
        self._chaining = False
        return self

    def configure(self, key: str, value: str | float) -> StreamExecutionEnvironment:
        """Sets an option of the job, such as `execution.mode`; see docs/configuration.md."""
        if not is_text(key):
            raise refusal("configure", f"the option is {key!r}: give its name")
        self._configuration[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def add_python_file(self, path: str) -> StreamExecutionEnvironment:
        """Ships a module, the directory of a package, a zip file of them, or a data file with the job.

        Functions of these modules are pickled by name; the job's processes import the modules. Functions find data
        files with `shipped_file`. All files together may have 512 MiB. Call it before the modules are imported: the
        program can import them, too. Raises ProgramError.
        """
        self._shipped.add(path)
        return self

    def set_python_requirements(self, path: str) -> StreamExecutionEnvironment:
        """Ships the packages of a requirements file with the job: wheels, which pip resolves here.

        The packages that tailrace needs keep their installed versions, and are not shipped. Raises ProgramError.
        """
        self._shipped.add_requirements(path)
        return self

    def add_python_archive(
        self, path: str, target_directory: str | None = None
    ) -> StreamExecutionEnvironment:
        """Ships a zip or tar file that is unpacked where the job runs; functions find its files by `shipped_file`.

        `target_directory`: the name of its directory; None: that of the file, without its ending. The packages of a
        packed environment (venv-pack, conda-pack) of the cluster's version of Python are imported from it. Raises
        ProgramError.
        """
        self._shipped.add_archive(path, target_directory)
        return self

    def create_temporary_view(self, name: str, stream: DataStream[Any]) -> None:
        """Gives a stream a name for `sql`; its records need a declared type. A view of that name is replaced. Raises
        ProgramError."""
        check_text("name", name, operator="create_temporary_view")
        check_view(name, stream)
        self._views[name] = stream

    def sql(self, query: str) -> DataStream[Any]:
        """Returns the results of a query in Spark SQL over the views: SELECT, WHERE, UNION ALL, subqueries, and
        aggregates in windows. Its records are NamedTuples with the names of the items. Raises ProgramError."""
        return run_query(query, self._views)

    def get_stream_graph(self, job_name: str = "tailrace job") -> StreamGraph:
        """Returns the graph of the transformations since the last `execute`. Raises ProgramError."""
        defaults = Defaults(
            parallelism=self._parallelism,
            max_parallelism=self._max_parallelism,
            chaining=self._chaining,
            configuration=dict(self._configuration),
            mini_batch=MINI_BATCH.of(self._configuration),
            shipped=self._shipped,
        )
        return create_stream_graph(job_name, self._program, defaults)

    def get_job_graph(self, job_name: str = "tailrace job") -> JobGraph:
        """Returns the JobGraph that `execute` would submit. Raises ProgramError."""
        return _job_graph(self.get_stream_graph(job_name))

    def execute(self, job_name: str = "tailrace job") -> JobExecutionResult:
        """Submits the job and, unless the program runs detached, waits for its end. Raises ProgramError."""
        return self.execute_async(job_name).result()

    def execute_async(self, job_name: str = "tailrace job") -> JobClient:
        """Submits the job; returns when the cluster has accepted it. Raises ProgramError."""
        return self._execute(job_name, current_executor)

    def _execute(self, job_name: str, find_executor: Callable[[], PipelineExecutor]) -> JobClient:
        check_text("job_name", job_name, operator="execute")
        executor = self._executor or find_executor()
        stream_graph = self.get_stream_graph(job_name)
        graph = _job_graph(stream_graph)
        self._program.pending.clear()
        if (context := current_context()) is not None:
            context.on_stream_graph(stream_graph)
        return executor.execute(graph)

    def _repr_html_(self) -> str:
        return program_svg(self._program.transformations, self._parallelism)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a StreamExecutionEnvironment exists only in the program that builds the job")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            advise(self, name)


def _job_graph(stream_graph: StreamGraph) -> JobGraph:
    graph = create_job_graph(stream_graph)
    check_size(graph)
    return graph
