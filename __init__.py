"""tailrace: a cluster control plane for stream processing whose conversation is its database.

Importing the package costs nothing: what it offers is loaded at first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pipelines.api import StreamExecutionEnvironment, TumblingProcessingTimeWindows, Types

__version__ = "0.1.0"

__all__ = ["StreamExecutionEnvironment", "TumblingProcessingTimeWindows", "Types"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from .pipelines import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
