"""The event log: one totally ordered topic that carries all RPCs and is the cluster's database."""

from .codec import Codec, Undecodable
from .event_log import EventLog, LogTruncated, LogUnavailable, Tail, Unreadable

__all__ = ["Codec", "EventLog", "LogTruncated", "LogUnavailable", "Tail", "Undecodable", "Unreadable"]
