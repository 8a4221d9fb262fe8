"""The prompt for SQL: a statement ends with a semicolon, Tab completes the names of tables and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....history.sql.statements import split_statements
from ....history.sql.tables import Table

DELIMITERS = " \t\n,.;()=<>+-*/'\"`"
_ENDS = {"exit", "quit"}
_WORDS = (
    "SELECT DISTINCT FROM WHERE GROUP BY ORDER HAVING LIMIT JOIN LEFT USING ON AS AND OR NOT NULL CASE WHEN THEN "
    "ELSE END WITH OVER PARTITION COUNT DESCRIBE SHOW TABLES"
)


class SqlPrompt:
    """Gathers lines to statements, and has them answered."""

    def __init__(self, tables: Mapping[str, Table], ask: Callable[[str], None]) -> None:
        columns = {name for table in tables.values() for name in table.columns.names}
        self._names = sorted({*tables, *columns, *_WORDS.split()})
        self._ask = ask
        self._pending = ""

    def prompt(self) -> str:
        """Whether a statement has begun."""
        return "...> " if self._pending else "sql> "

    def do(self, line: str) -> bool:
        """Answers the statements that end with the line."""
        if not self._pending and line.strip().rstrip(";").lower() in _ENDS:
            return False
        ended, self._pending = split_statements(f"{self._pending}\n{line}" if self._pending else line)
        for statement in ended:
            self._ask(statement)
        return True

    def cancel(self) -> None:
        """Forgets the statement that has begun."""
        self._pending = ""

    def completions(self, text: str, *, is_first: bool) -> list[str]:
        """Names and words that begin so, in upper or lower case."""
        return [name for name in self._names if name.lower().startswith(text.lower())]
