"""What any client of a cluster does: it writes requests to the submissions topic and reads the answers in the log."""

from .accumulators import Counts, KafkaReports
from .checkpoints import CheckpointFailedError, Progress, SavepointKeptError
from .client import Client
from .conversation import Conversation, JobRejectedError, NoAnswer
from .incidents import Incident, Incidents
from .output import OutputRecord, read_output

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
