"""The job of an application cluster: the program is shipped, options are its own, and the jobmanager reads it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.pipelines.graph.errors import ProgramError
from tailrace.schemas.types import PythonFile
from tailrace.services.cli.execution.application_job import create_job
from tailrace.services.cli.exit_codes import CommandFailure
from tailrace.services.configuration import Configuration, load_configuration
from tailrace.services.yarn.deployment import files_to_ship
from tailrace.services.yarn.job_file import JobFile, read_job_file


def job_of(program: str, *arguments: str, configuration: Configuration | None = None) -> JobFile:
    return create_job(
        configuration or Configuration({}),
        program,
        arguments,
        2,
        (),
        None,
        "/savepoints/1",
        allow_non_restored_state=True,
    )


def test_program_file_is_shipped_with_its_arguments_and_job_options(tmp_path: Path) -> None:
    program = tmp_path / "word_count.py"
    program.write_text("print()")
    definitions = ["restart-strategy.type=none", "yarn.application.queue=nights"]
    job = job_of(str(program), "--port", "1", configuration=load_configuration([], definitions))
    assert job.job_id.startswith("word-count-")
    assert job.entry_point.arguments == ("word_count.py", "--port", "1")
    assert job.entry_point.configuration == {"restart-strategy.type": "none"}
    assert job.entry_point.python_files == (PythonFile(path="word_count.py", content=b"print()"),)
    assert (job.parallelism, job.savepoint_path) == (2, "file:///savepoints/1")
    shipped = files_to_ship(Configuration({}), {}, tmp_path, job)["job.json"]
    assert read_job_file(shipped) == job


def test_function_is_named_and_not_shipped() -> None:
    job = job_of("package.module:main", "x")
    assert (job.entry_point.target, job.entry_point.arguments) == ("package.module:main", ("x",))
    assert job.entry_point.python_files == ()


def test_program_that_is_missing_or_has_secret_in_its_arguments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="there is no such file"):
        job_of(str(tmp_path / "missing.py"))
    with pytest.raises(CommandFailure, match="holds a secret"):
        job_of("package.module:main", "https://user:password@host/")
