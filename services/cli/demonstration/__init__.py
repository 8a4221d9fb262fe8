"""The parts of `tailrace demo`: a server of real text, and the count that the cluster's count is held against."""

from .tally import Tally, Verdict, Window
from .text_server import TextServer

__all__ = ["Tally", "TextServer", "Verdict", "Window"]
