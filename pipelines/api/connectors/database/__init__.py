"""Tables of SQL databases as source and sink (Flink's JDBC connector).

Both are a Source and a TransactionalSink as users write them.
"""

from .sink import DatabaseSink
from .source import DatabaseSource

__all__ = ["DatabaseSink", "DatabaseSource"]
