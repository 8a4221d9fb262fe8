"""An endpoint as data: method, path, parameters, types, and the function that answers it.

The routes of the server and the OpenAPI document are both made from these, so neither has what the other lacks.
"""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import Response

from .errors import BadRequest, RestError
from .moment import Moment
from .principal import Role

Parameters = Mapping[str, Any]
"""The parameters of the path and of the query, by name."""
View = Callable[[Moment, Parameters], Any]
"""Returns a value of the shape of the answer. Pure."""
OpenStream = Callable[[Parameters, str | None], Awaitable[Response]]
"""(parameters, Last-Event-ID) -> the response with server-sent events."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a path or query. `type` is str, int, or an Enum of strings."""

    name: str
    type: Any
    doc: str
    minimum: int | None = None
    maximum: int | None = None

    def read(self, text: str, where: str) -> Any:
        """Parses a text. Raises BadRequest."""
        try:
            if self.type is not int:
                return msgspec.convert(text, self.type)
            if not re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII):
                raise ValueError(text)
            value = int(text)
        except (ValueError, msgspec.ValidationError):
            raise self._error(text, where) from None
        if (self.minimum is not None and value < self.minimum) or (
            self.maximum is not None and value > self.maximum
        ):
            raise self._error(text, where)
        return value

    def _error(self, text: str, where: str) -> BadRequest:
        return BadRequest(f'Cannot resolve {where} parameter ({self.name}) from value "{text[:80]}".')


@dataclass(frozen=True, slots=True)
class Text:
    """The body of an answer that is plain text without secrets, with its headers."""

    text: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a command. `offset`: the log has its outcome at this offset."""

    body: Any
    status: int
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A read of states is answered by `view`; a write, and a read of the log itself, by `command`; server-sent events
    come from `stream`. A command gets the parameters, the body and the Idempotency-Key; the last two may be None."""

    method: str
    path: str
    path_parameters: Sequence[Parameter] = ()
    query: Sequence[Parameter] = ()
    view: View | None = None
    command: Callable[..., Answer] | None = None
    stream: OpenStream | None = None
    body: Any = None
    """The type of the body of a request; None: there is none."""
    response: Any = None
    """The type of the answer, if the function has no annotation for it; that of the data of each event of a stream.
    `bytes`: the stream is one of bytes, not of events."""
    stream_doc: str = ""
    """What a stream has; without it, it has the events of the log, and continues after `Last-Event-ID`."""
    status: int = 200
    errors: Sequence[type[RestError]] = ()
    """The errors of this endpoint, beside those that all have."""
    is_live: bool = False
    """Whether the view of the present has the metrics of TaskExecutors."""
    needs_body: bool = False
    """Whether a request must have a body; otherwise an empty one is a body without fields."""
    takes_file: bool = False
    """Whether the body is multipart/form-data with one file: the command gets an UploadedFile."""
    instead: str = ""
    """Of an endpoint that tailrace does not have: a sentence that says what to do instead."""
    role: Role | None = None
    """The role that a principal needs; None: reader for a GET, operator for all others."""

    @property
    def needed_role(self) -> Role:
        """The role that a principal needs at least."""
        if self.role is not None:
            return self.role
        return Role.READER if self.method == "GET" else Role.OPERATOR

    @property
    def response_type(self) -> Any:
        """The type of a successful answer."""
        if self.response is not None:
            return self.response
        assert self.view is not None
        return _return_type(self.view)

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        function = self.view or self.command or self.stream
        text = (getattr(function, "__doc__", None) or "").strip().partition("\n\n")[0]
        return re.sub(r"^[A-Z]+ /\S*:? ?", "", " ".join(text.split())) or f"{self.method} {self.path}"


@functools.cache
def _return_type(view: View) -> Any:
    return typing.get_type_hints(view)["return"]
