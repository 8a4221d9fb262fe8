"""Connections to SQL databases by SQLAlchemy, which is loaded where the tasks run: the extra `tailrace[sql]`.

A password is the first line of a file there, and is in no program or event.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from .....infra.redaction import has_password, is_secret
from ....graph.errors import ProgramError
from ...checks import is_text
from ...source_location import caller_location

_SQLITE_WAIT_S: Final = 60
"""How long a subtask waits for another one that writes to the same SQLite file."""


class Database:
    """The address of a database, as a URL of SQLAlchemy."""

    def __init__(self, who: str, url: str, password_file: str | None) -> None:
        """Raises ProgramError."""
        if not is_text(url) or "://" not in url:
            raise refusal(
                who, "expected a URL of SQLAlchemy, such as postgresql+psycopg://user@host/database"
            )
        if has_password(url) or any(is_secret(name) for name, _ in parse_qsl(urlsplit(url).query)):
            raise refusal(
                who,
                "its URL has a password, which would stay in the cluster's log for ever: write it into a file where the"
                " tasks run, and give password_file",
            )
        if password_file is not None and not is_text(password_file):
            raise refusal(who, f"password_file is {password_file!r}, not the path of a file")
        self.url = url
        self.password_file = password_file

    def connect(self) -> Any:
        """Returns SQLAlchemy's engine. Raises any error of it."""
        try:
            import sqlalchemy
        except ImportError as error:
            raise RuntimeError(
                "SQLAlchemy is not installed where the tasks run: pip install 'tailrace[sql]'"
            ) from error
        url = sqlalchemy.engine.make_url(self.url)
        if self.password_file is not None:
            password, *_ = Path(self.password_file).read_text().splitlines() or [""]
            if not password:
                raise RuntimeError(
                    f"the first line of {self.password_file} is empty: write the password into it"
                )
            url = url.set(password=password)
        arguments = {"timeout": _SQLITE_WAIT_S} if url.get_backend_name() == "sqlite" else {}
        return sqlalchemy.create_engine(url, connect_args=arguments, pool_pre_ping=True, hide_parameters=True)


def read_table(engine: Any, name: str, schema: str | None) -> Any:
    """Returns a table with its columns. Raises RuntimeError if there is none."""
    import sqlalchemy as sql

    try:
        found = sql.inspect(engine).get_columns(name, schema=schema)  # reflection of a whole table is slow
    except sql.exc.NoSuchTableError:
        found = []
    if not found:
        raise RuntimeError(f"the database {engine.url.render_as_string()} has no table {name}: create it")
    columns = [sql.Column(column["name"], column["type"]) for column in found]
    return sql.Table(name, sql.MetaData(), *columns, schema=schema)


def field_names(of: object) -> tuple[str, ...]:
    """Returns the fields of a dataclass or NamedTuple; none for anything else."""
    if isinstance(of, type) and dataclasses.is_dataclass(of):
        return tuple(field.name for field in dataclasses.fields(of))
    names: tuple[str, ...] = getattr(of, "_fields", ())
    return names


def check_column(table: Any, name: str) -> None:
    """Raises RuntimeError if a table has no column of that name."""
    if name not in table.c:
        raise RuntimeError(f"the table {table.name} has no column {name}: it has {', '.join(table.c.keys())}")


def check_names(who: str, **names: object) -> None:
    """Raises ProgramError if a parameter is not a name."""
    for parameter, name in names.items():
        if not is_text(name):
            raise refusal(who, f"{parameter} is {name!r}, not a name")


def refusal(who: str, reason: str) -> ProgramError:
    """Returns the error of a parameter."""
    return ProgramError(reason, operator=who, location=caller_location())
