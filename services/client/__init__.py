"""What any client of a cluster does: it writes requests to the submissions topic and reads the answers in the log."""

from .accumulators import Counts, KafkaReports
from .checkpoint_requests import CheckpointFailedError, Progress, SavepointKeptError
from .client import Client
from .job_incidents import Incident, Incidents
from .log_subscription import Conversation, JobRejectedError, NoAnswer
from .print_output import OutputRecord, read_output

__all__ = [
    "CheckpointFailedError",
    "Client",
    "Conversation",
    "Counts",
    "Incident",
    "Incidents",
    "JobRejectedError",
    "KafkaReports",
    "NoAnswer",
    "OutputRecord",
    "Progress",
    "SavepointKeptError",
    "read_output",
]
