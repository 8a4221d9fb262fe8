"""Options of the Dispatcher: how many jobs it takes, and how long it remembers those that have ended."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import DAY, DURATION, INT, SECOND
from ....infra.config.options import ConfigOption
from .kinds import MASTER

JOBSTORE_EXPIRATION_TIME = ConfigOption(
    key="jobstore.expiration-time",
    type=DURATION,
    default=7 * DAY,
    at_least=SECOND,
    doc="How long the cluster remembers a job after its end. A forgotten job is not in `tailrace list` any more, its "
    "id may be used again, and its output is deleted. The log and its archive keep its history.",
    scopes=MASTER,
    flink="1 h",
)
JOBSTORE_MAX_CAPACITY = ConfigOption(
    key="jobstore.max-capacity",
    type=INT,
    default=10_000,
    at_least=0,
    doc="How many ended jobs the cluster remembers. If there are more, it forgets the oldest ones.",
    scopes=MASTER,
    flink="unlimited",
)
MAX_JOBS = ConfigOption(
    key="dispatcher.max-jobs",
    type=INT,
    default=20_000,
    at_least=1,
    doc="How many jobs the cluster takes that have not ended: running, suspended, or waiting to be built. Further "
    "submissions are rejected.",
    scopes=MASTER,
    ours=True,
)
MAX_JOBS_PER_CLIENT = ConfigOption(
    key="dispatcher.max-jobs-per-client",
    type=INT,
    default=10_000,
    at_least=1,
    doc="Like dispatcher.max-jobs, for the jobs of one client: one sender of submissions.",
    scopes=MASTER,
    ours=True,
)
MAX_WAITING_PROGRAMS = ConfigOption(
    key="dispatcher.max-waiting-programs",
    type=INT,
    default=10_000,
    at_least=1,
    doc="How many programs may wait to be built. Further programs are rejected.",
    scopes=MASTER,
    ours=True,
)
MAX_WAITING_PROGRAMS_PER_CLIENT = ConfigOption(
    key="dispatcher.max-waiting-programs-per-client",
    type=INT,
    default=5_000,
    at_least=1,
    doc="Like dispatcher.max-waiting-programs, for the programs of one client. Clients take turns in the queue.",
    scopes=MASTER,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    JOBSTORE_EXPIRATION_TIME,
    JOBSTORE_MAX_CAPACITY,
    MAX_JOBS,
    MAX_JOBS_PER_CLIENT,
    MAX_WAITING_PROGRAMS,
    MAX_WAITING_PROGRAMS_PER_CLIENT,
)
