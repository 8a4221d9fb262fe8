"""The dialect that sqlglot reads and writes for us: Spark SQL, with less in its tokens."""

from __future__ import annotations

from typing import ClassVar, Final

from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import TokenType


class _Dialect(Spark):
    """Spark SQL. A text has no escape but a doubled quote: Spark reads a backslash in other ways by its options. WINDOW
    is no keyword: sqlglot would take `GROUP BY window(...)` for a clause of named windows."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES: ClassVar[list[str]] = ["'"]
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: token for word, token in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"
        }


DIALECT: Final = _Dialect()
