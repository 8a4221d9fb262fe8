"""The job of an application cluster, from the command line: its program is shipped and runs on the jobmanager's
machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ....infra.config.options import Scope
from ....pipelines.graph.python_files import check, collect_files, merge_files
from ....schemas.types import EntryPoint, PythonFile
from ...client.client import new_job_id
from ...configuration import Configuration
from ...configuration.sources import DEFINITION
from ...yarn.job_file import JobFile
from ..args.common_options import is_entry_point
from ..args.savepoint_location import parse_optional_location
from .program_run import check_arguments

_RUN_SHIPPED_FILE: Final = "tailrace.pipelines.api.build:run_shipped_file"


def create_job(
    configuration: Configuration,
    program: str,
    arguments: tuple[str, ...],
    parallelism: int | None,
    files: tuple[PythonFile, ...],
    job_id: str | None,
    from_savepoint: str | None,
    *,
    allow_non_restored_state: bool,
) -> JobFile:
    """Returns the job of a program, PROGRAM.py or module:function. Raises ProgramError if a file can't be shipped,
    CommandFailure."""
    check_arguments(arguments)
    if is_entry_point(program):
        target, name = program, program.partition(":")[0].rpartition(".")[2]
    else:
        files = merge_files(files, collect_files(program))
        check(files)
        target, name = _RUN_SHIPPED_FILE, Path(program).stem
        arguments = (Path(program).name, *arguments)
    options = {
        setting.key: setting.text
        for setting in configuration.settings()
        if setting.origin == DEFINITION and Scope.JOB in configuration.option(setting.key).scopes
    }
    return JobFile(
        job_id=job_id or new_job_id(name),
        entry_point=EntryPoint(target=target, arguments=arguments, configuration=options, python_files=files),
        parallelism=parallelism,
        savepoint_path=parse_optional_location(from_savepoint),
        allow_non_restored_state=allow_non_restored_state,
    )
