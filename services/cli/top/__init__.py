"""`tailrace top`: a cluster on one screen, live or as it was.

    Reader (reading)  reads a log on a thread of its own, and waits where it has gone away
    Watch  (watch)    folds what was read, and gives a View (view) of the moment behind the last event
    Player (player)   hands events from the one to the other: as they come, or by the virtual clock of a Playback
    screen            View, Look (what the person at the keys looks at) and Status -> lines of text; pure
    terminal          the one part that knows textual: keys in, lines out

What is shown of the cluster is a function of the log up to one offset and of nothing else: playing the past shows what
was to be seen when it happened.
"""

from .command import top

__all__ = ["top"]
