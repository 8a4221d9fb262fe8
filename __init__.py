"""tailrace: a cluster control plane for stream processing whose conversation is its database.

This is the face that job authors see: `from tailrace import StreamExecutionEnvironment`. Importing the
package costs nothing, since services, tools and Spark's Python workers import it too: what it offers is
loaded at first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pipelines.api import StreamExecutionEnvironment, TumblingProcessingTimeWindows, Types

__version__ = "0.1.0"

__all__ = ["StreamExecutionEnvironment", "TumblingProcessingTimeWindows", "Types", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .pipelines import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
