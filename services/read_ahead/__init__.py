"""A long log is read by two processes: a child consumes and decodes it, this one folds what comes.

Consuming and decoding take a third of a start from the log (docs/notes/start-up.md), and need no state. What the child
has decoded is passed on in a form that is read in half the time; what is left to do is folding.
"""

from .log import ReadAheadLog

__all__ = ["ReadAheadLog"]
