"""Submits the job of an application cluster, as any client would, once this process leads.

The log knows whether that was done: a later attempt submits the job only if no earlier one has, and the Dispatcher
rejects a second submission of the same id.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ...infra import threads
from ...infra.closing import Closeable
from ...infra.logging_setup import logger
from ..client.client import Client
from ..client.subscription import JobRejectedError
from ..configuration import Configuration
from ..dispatcher.state import DispatcherState
from ..log import LogUnavailable
from ..yarn.job_file import JobFile

_log = logger(__name__)
_LOOK_S: Final = 0.05
_PAUSE_S: Final = 1.0
_END_TIMEOUT_S: Final = 10.0


class JobSubmitter(Closeable):
    """`find_state`: the Dispatcher's state if this process leads it and has read the log to its end."""

    def __init__(
        self, configuration: Configuration, job: JobFile, find_state: Callable[[], DispatcherState | None]
    ) -> None:
        self._configuration = configuration
        self._job = job
        self._find_state = find_state
        self._closed = threading.Event()
        self._thread = threads.Thread(target=self._run, name="job submission")

    def start(self) -> None:
        """Starts to wait for the leadership; called once."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(_END_TIMEOUT_S)

    def _run(self) -> None:
        while not self._closed.wait(_LOOK_S):
            state = self._find_state()
            if state is None:
                continue
            if self._job.job_id in state.jobs or state.ending is not None:
                return
            try:
                self._submit()
            except LogUnavailable as error:
                _log.warning("cannot submit the job; tries again", job_id=self._job.job_id, reason=str(error))
                self._closed.wait(_PAUSE_S)
                continue
            return

    def _submit(self) -> None:
        job = self._job
        with Client(self._configuration, name="application") as client:
            try:
                client.submit(
                    job.entry_point,
                    job.parallelism,
                    job.job_id,
                    savepoint_path=job.savepoint_path,
                    allow_non_restored_state=job.allow_non_restored_state,
                )
            except JobRejectedError as error:
                # It was not sent: no event of the log ends the cluster.
                client.shut_down(f"job {job.job_id} is rejected: {error.reason}")
        _log.info("job submitted", job_id=job.job_id)
