"""A prompt for SQL: a statement ends with a semicolon, Tab completes the names of tables and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...exit_codes import to_failure

if TYPE_CHECKING:
    from ....history.sql.tables import Table

_PROMPT, _MORE = "sql> ", "...> "
_ENDS = {"exit", "quit"}
_WORDS = (
    "SELECT DISTINCT FROM WHERE GROUP BY ORDER HAVING LIMIT JOIN LEFT USING ON AS AND OR NOT NULL CASE WHEN THEN "
    "ELSE END WITH OVER PARTITION COUNT DESCRIBE SHOW TABLES"
)


class Prompt:
    """Reads statements and has them answered until `exit` or Ctrl-D."""

    def __init__(self, where: str, tables: Mapping[str, Table], ask: Callable[[str], None]) -> None:
        self._where = where
        self._names = {
            *tables,
            *(name for each in tables.values() for name in each.columns.names),
            *_WORDS.split(),
        }
        self._ask = ask

    def run(self) -> None:
        """Until the end. Errors that are expected are told, and it goes on."""
        self._complete()
        print(f"{self._where}. SHOW TABLES; DESCRIBE log; Tab completes, ; ends a statement, Ctrl-D all.")
        pending = ""
        while True:
            try:
                line = input(_MORE if pending else _PROMPT)
                if not pending and line.strip().rstrip(";").lower() in _ENDS:
                    return
                pending = self._take(f"{pending}\n{line}" if pending else line)
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                # As in other shells: what is being said, or done, is given up.
                print("^C")
                pending = ""

    def _take(self, text: str) -> str:
        """What is left after the statements that have ended."""
        from ....history.sql.statements import split_statements

        ended, rest = split_statements(text)
        for each in ended:
            try:
                self._ask(each)
            except Exception as error:
                known = to_failure(error)
                if known is None:
                    raise
                print(" ".join(str(known).split()))
        return rest

    def _complete(self) -> None:
        try:
            import readline
        except ImportError:
            return

        def completions(text: str, state: int) -> str | None:
            found = sorted(each for each in self._names if each.lower().startswith(text.lower()))
            return found[state] if state < len(found) else None

        readline.set_completer_delims(" \t\n,.;()=<>+-*/'\"`")
        readline.set_completer(completions)
        readline.parse_and_bind("tab: complete")
