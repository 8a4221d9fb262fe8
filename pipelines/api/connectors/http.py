"""An HTTP server as a sink."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from ....infra.redaction import has_user_information, is_secret
from ...functions import AsyncRetryStrategy, ExponentialBackoffDelayRetryStrategy
from ...functions.http_sink import HttpRequests, is_transient, to_json
from ...graph.errors import ProgramError
from ..checks import is_text, is_whole
from ..durations import timedelta_ms
from ..source_location import caller_location

_METHODS: Final = ("POST", "PUT", "PATCH")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET_HEADERS: Final = frozenset({"authorization", "proxy-authorization", "cookie"})
_RETRY: Final = ExponentialBackoffDelayRetryStrategy(
    max_attempts=10, initial_delay=timedelta(milliseconds=200), exception_predicate=is_transient
)


class HttpSink:
    """Sends each record to an HTTP server, in batches, at least once."""

    def __init__(
        self,
        url: str,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        header_files: Mapping[str, str] | None = None,
        body: Callable[[list[Any]], bytes] = to_json,
        batch_size: int = 100,
        linger: timedelta = timedelta(milliseconds=100),
        requests: int = 8,
        timeout: timedelta = timedelta(seconds=30),
        retry: AsyncRetryStrategy | None = _RETRY,
    ) -> None:
        """`header_files`: name of a header -> file on every machine of the TaskExecutors, whose first line is the
        value: so a secret is in no event and no log. `body` makes the body of a request from its records; by default it
        is a JSON array. `requests`: the number at a time, in each subtask. `timeout`: of one request. Raises
        ProgramError.
        """
        if not is_text(url) or urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            raise _refusal(f"the URL is {url!r}, not http://... or https://...")
        if has_user_information(url) or any(map(is_secret, re.split(r"[?&=]", urlsplit(url).query))):
            raise _refusal(
                "its URL has a secret, and would stay in the cluster's log for ever: give a header by header_files"
            )
        if method not in _METHODS:
            raise _refusal(f"the method is {method!r}, not one of {', '.join(_METHODS)}")
        for name in headers or ():
            if is_secret(name) or name.lower() in _SECRET_HEADERS:
                raise _refusal(
                    f"the header {name} is a secret, and would stay in the cluster's log for ever: put it into the"
                    " first line of a file, and name the file in header_files"
                )
        for name in (*(headers or ()), *(header_files or ())):
            if not is_text(name) or _NAME.fullmatch(name) is None:
                raise _refusal(f"{name!r} cannot be the name of a header")
        for what, count in (("batch_size", batch_size), ("requests", requests)):
            if not is_whole(count, 1):
                raise _refusal(f"{what} is {count!r}, not an integer of 1 or more")
        self.url = url
        self.name = f"HTTP {urlsplit(url).netloc}"
        """For plans."""
        self.capacity = batch_size * requests
        self.retry = retry
        linger_ms = timedelta_ms("linger", linger, operator="HttpSink", at_least=0)
        timeout_ms = timedelta_ms("timeout", timeout, operator="HttpSink")
        self.function = HttpRequests(
            url,
            method,
            dict(headers or {}),
            {name: os.path.abspath(file) for name, file in (header_files or {}).items()},
            body,
            batch_size=batch_size,
            linger_s=linger_ms / 1000,
            requests=requests,
            timeout_s=timeout_ms / 1000,
        )


def _refusal(reason: str) -> ProgramError:
    return ProgramError(reason, operator="HttpSink", location=caller_location())
