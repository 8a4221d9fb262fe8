"""The parts of `tailrace demo`: a server of real text, and the count that the cluster's count is held against."""

from .text_server import TextServer
from .window_counts import Verdict, Window, WindowCounts

__all__ = ["WindowCounts", "TextServer", "Verdict", "Window"]
