"""`tailrace top`: a cluster on one screen, live or as it was.

What is shown of the cluster is a function of the log up to one offset, so a playback shows what was to be seen then.

    event_player    reads the log, applies the events that are due to a ViewBuilder, and publishes View and status
    view_builder    the log up to an event -> a View of the cluster
    panels          View -> rows and lines of rich text
    app             textual's widgets and keys
"""

from .command import top

__all__ = ["top"]
