"""Semicolons end statements, except in quotes and comments."""

from __future__ import annotations

import pytest

from tailrace.services.history.sql.statements import mentioned_tables, split_statements


@pytest.mark.parametrize(
    ("text", "ended", "rest"),
    [
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT 1;", ["SELECT 1"], ""),
        ("SELECT 1; SELECT\n2 ; SELECT", ["SELECT 1", "SELECT\n2"], "SELECT"),
        ("SELECT ';' ; SELECT \"a;\" ; SELECT `b;`", ["SELECT ';'", 'SELECT "a;"'], "SELECT `b;`"),
        (r"SELECT 'it\'s;' ;", [r"SELECT 'it\'s;'"], ""),
        ("SELECT 'it''s;' ;", ["SELECT 'it''s;'"], ""),
        ("SELECT 1 -- one; and\n+ 1;", ["SELECT 1  \n+ 1"], ""),
        ("SELECT/* a; b */1;", ["SELECT 1"], ""),
        ("SELECT /*+ BROADCAST(a) */ 1;", ["SELECT /*+ BROADCAST(a) */ 1"], ""),
        ("SELECT 3 - 1 / 2;", ["SELECT 3 - 1 / 2"], ""),
        ("SELECT 1 /* it goes on;", [], "SELECT 1 /* it goes on;"),
        ("SELECT 'it goes on;", [], "SELECT 'it goes on;"),
        (";; -- nothing\n;", [], ""),
        ("", [], ""),
    ],
)
def test_semicolons_end_statements(text: str, ended: list[str], rest: str) -> None:
    assert split_statements(text) == (ended, rest)


def test_tables_are_found_as_words() -> None:
    names = ["log", "client_JobFinished", "client_Job"]
    assert mentioned_tables("SELECT * FROM LOG JOIN client_jobfinished f", names) == [
        "log",
        "client_JobFinished",
    ]
    assert mentioned_tables("SELECT catalog, logs FROM my_log", names) == []
