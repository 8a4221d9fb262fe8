"""Requests about programs: Flink's /jars. The bodies, and what a request to plan or run a program asks for.

Flink's clients give parameters in the body or in the query; the body comes first. Fields that are not known are
skipped, and numbers may be texts, as in Flink.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec

from .endpoint import Parameter, Parameters
from .errors import BadRequest
from .flink import ids

_MAX_PARALLELISM: Final = 1 << 15
_Parallelism = Annotated[int, msgspec.Meta(ge=1, le=_MAX_PARALLELISM)]
_Digits = Annotated[str, msgspec.Meta(pattern="^[0-9]{0,5}$")]


class Flag(StrEnum):
    """A truth value in a query."""

    TRUE = "true"
    FALSE = "false"


class PlanBody(msgspec.Struct, frozen=True, rename="camel"):
    """POST /jars/:jarid/plan. `entryClass`: module:function; without it, a file .py runs as a script. `programArgs` is
    split as a shell does; `programArgsList` comes first. `flinkConfiguration`: options of the job."""

    entry_class: str | None = None
    program_args: str | None = None
    program_args_list: Sequence[str] | None = None
    parallelism: _Parallelism | _Digits | None = None
    job_id: str | None = None
    flink_configuration: Mapping[str, str] | None = None


class RunBody(PlanBody, frozen=True, rename="camel"):
    """POST /jars/:jarid/run. tailrace leaves savepoints to who took them: the claim mode is NO_CLAIM."""

    savepoint_path: str | None = None
    allow_non_restored_state: bool | None = None
    claim_mode: Literal["NO_CLAIM", "LEGACY"] | None = None
    restore_mode: Literal["NO_CLAIM", "LEGACY"] | None = None


class ProgramFile(msgspec.Struct, frozen=True):
    """An uploaded program. `entry` is empty: files have no manifest that names a function."""

    id: str
    name: str
    uploaded: int
    entry: Sequence[str]


class ProgramFiles(msgspec.Struct, frozen=True):
    """Flink's JarListInfo. `address`: of the server."""

    address: str
    files: Sequence[ProgramFile]


class UploadResult(msgspec.Struct, frozen=True):
    """Flink's JarUploadResponseBody. The last part of `filename` is the id of the program."""

    filename: str
    status: Literal["success"]


class RunResult(msgspec.Struct, frozen=True):
    """Flink's JarRunResponseBody: the id of the job, which is that of its application too."""

    jobid: str
    application_id: str = msgspec.field(name="applicationId")


PLAN_QUERY: Final = (
    Parameter("entry-class", str, "The function, as module:function."),
    Parameter("program-args", str, "The arguments, split as a shell does."),
    Parameter("programArg", str, "The arguments, with commas between."),
    Parameter("parallelism", int, "The default parallelism.", minimum=1, maximum=_MAX_PARALLELISM),
)
RUN_QUERY: Final = (
    *PLAN_QUERY,
    Parameter("savepointPath", str, "The savepoint or checkpoint that the job starts from."),
    Parameter("allowNonRestoredState", Flag, "Whether state that belongs to no operator is skipped."),
)


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """What is planned or run. `flink_job_id`: the digits that the client has chosen for the job."""

    entry_point: str | None
    arguments: tuple[str, ...]
    parallelism: int | None
    configuration: dict[str, str]
    flink_job_id: str | None
    savepoint_path: str | None = None
    allow_non_restored_state: bool = False


def read_request(parameters: Parameters, body: PlanBody) -> ProgramRequest:
    """Returns the request of a body and a query. Raises BadRequest."""
    parallelism = int(body.parallelism or 0) or parameters.get("parallelism")
    if parallelism is not None and parallelism > _MAX_PARALLELISM:
        raise BadRequest(f"parallelism is at most {_MAX_PARALLELISM:,}.")
    if body.job_id and not ids.is_flink_id(body.job_id):
        raise BadRequest("jobId has 32 hexadecimal digits.")
    allows = body.allow_non_restored_state if isinstance(body, RunBody) else None
    if allows is None:
        allows = parameters.get("allowNonRestoredState") is Flag.TRUE
    savepoint = body.savepoint_path if isinstance(body, RunBody) else None
    return ProgramRequest(
        entry_point=body.entry_class or parameters.get("entry-class") or None,
        arguments=_arguments(parameters, body),
        parallelism=parallelism,
        configuration=dict(body.flink_configuration or {}),
        flink_job_id=body.job_id or None,
        savepoint_path=savepoint or parameters.get("savepointPath") or None,
        allow_non_restored_state=allows,
    )


def _arguments(parameters: Mapping[str, Any], body: PlanBody) -> tuple[str, ...]:
    if body.program_args_list:
        return tuple(body.program_args_list)
    text = body.program_args or parameters.get("program-args")
    if text:
        try:
            return tuple(shlex.split(text))
        except ValueError as error:
            raise BadRequest(f"The arguments of the program can't be split: {error}.") from None
    listed = parameters.get("programArg")
    return tuple(listed.split(",")) if listed else ()
