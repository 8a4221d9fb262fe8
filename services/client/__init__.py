"""What any client of a cluster does: it writes requests to the submissions topic and reads the answers in the log."""

from .accumulators import Counts, KafkaReports
from .client import Client
from .conversation import Conversation, JobRejectedError, NoAnswer
from .incidents import Incident, Incidents
from .output import OutputRecord, read_output

__all__ = [
    "Client",
    "Conversation",
    "Counts",
    "Incident",
    "Incidents",
    "JobRejectedError",
    "KafkaReports",
    "NoAnswer",
    "OutputRecord",
    "read_output",
]
