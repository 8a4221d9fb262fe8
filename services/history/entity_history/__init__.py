"""What the log tells of one thing: the lines of single events, and stories made of them.

`lines` has the one-line form of an event. A Teller tells a log event by event: in words (`phrases`), with whom it
concerns (`entities`, `cast`) and, of a failure, what it began with (`failures`). A Timeline collects the story of one
entity: what matters to it (`weights`), what is alike told together (`grouping`), between a head and an outcome
(`outcomes`). `causes` walks from an event up to what began it, and down to all that came of it; `finding` knows what
people call things.
"""

from .event_formatting import (
    EventFilter,
    FormattedEvent,
    align_columns,
    columns,
    key_fields,
    line,
    shorten_ids,
)

__all__ = ["FormattedEvent", "EventFilter", "align_columns", "columns", "key_fields", "line", "shorten_ids"]
