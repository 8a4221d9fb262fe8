"""Reports events of the log that no process can have sent: a dead letter for each, with the reason."""

from __future__ import annotations

from collections.abc import Callable

from ...schemas.event import Event, Record
from .codec import Codec
from .event_log import OnUnreadable, Unreadable


def report_false_headers(topic: str, codec: Codec, write: OnUnreadable) -> Callable[[Record, str], None]:
    """Returns a function of an event and the reason, for `Replica`. The letter has the event in the encoding of this
    process: its bytes in the log are not known any more."""

    def report(record: Record, fault: str) -> None:
        reason = f"ignored {record.body.AVRO_NAME}: {fault}"
        write(Unreadable(topic, 0, record.offset, reason, None, _encode(codec, record)))

    return report


def _encode(codec: Codec, record: Record) -> bytes | None:
    try:
        return codec.encode(Event(record.header, record.body))
    except Exception:
        # It was decoded, but the log's feature level may not have this event.
        return None
