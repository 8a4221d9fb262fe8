"""A notebook that a kernel executes: what the cells show of streams, rows and programs (docs/test-your-program.md)."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook

CELLS: Mapping[str, str] = {
    "set up": """
        from dataclasses import dataclass
        from tailrace import StreamExecutionEnvironment

        @dataclass(frozen=True)
        class Order:
            user: str
            amount: int

        env = StreamExecutionEnvironment.get_execution_environment()
        orders = env.from_collection([Order("<ann>", 3), Order("bob", 2), Order("<ann>", 4)]).name("Orders & more")
        totals = orders.key_by("user").sum("amount")
        totals.print("totals")
    """,
    "stream": "orders",
    "program": "env",
    "rows": "totals.show()",
    "first rows": "orders.show(1)",
    "failed": "orders.map(lambda order: order.amount // 0, int).name('Division').show()",
    "rows after failure": "totals.show()",
    "program after failure": "env",
    "records": """
        with orders.execute_and_collect() as records:
            print(sum(order.amount for order in records))
    """,
}
MAY_FAIL = {"failed"}


@pytest.fixture(scope="module")
def outputs() -> Mapping[str, list[Any]]:
    """The outputs of the executed cells, by name."""
    cells = [new_code_cell(textwrap.dedent(text).strip()) for text in CELLS.values()]  # type: ignore[no-untyped-call]
    for name, cell in zip(CELLS, cells, strict=True):
        cell.metadata["tags"] = ["raises-exception"] if name in MAY_FAIL else []
    notebook = new_notebook(cells=cells)  # type: ignore[no-untyped-call]
    # Sockets of a kernel have long names below the directory, and a path of a socket is short.
    with TemporaryDirectory(prefix="nb") as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", directory)
        patch.setenv("JUPYTER_RUNTIME_DIR", directory)
        manager = AsyncKernelManager(
            kernel_name="python3", transport="ipc", connection_file=str(Path(directory) / "k.json")
        )
        client = NotebookClient(notebook, km=manager, timeout=60)
        try:
            client.execute(cwd=directory, cleanup_kc=True)
        except CellExecutionError as error:
            pytest.fail(str(error))
    nbformat.validate(notebook)
    return {name: cell.outputs for name, cell in zip(CELLS, notebook.cells, strict=True)}


def shown(outputs: Mapping[str, list[Any]], cell: str) -> Mapping[str, str]:
    """Returns what the last object of a cell shows, by media type."""
    (result,) = (each for each in outputs[cell] if each["output_type"] == "execute_result")
    data: Mapping[str, str] = result["data"]
    return data


def table(outputs: Mapping[str, list[Any]], cell: str) -> list[list[str]]:
    rows = ElementTree.fromstring(shown(outputs, cell)["text/html"]).iter("tr")
    return [["".join(each.itertext()) for each in row] for row in rows]


def names(outputs: Mapping[str, list[Any]], cell: str) -> set[str | None]:
    """Returns the texts of a drawing."""
    svg = ElementTree.fromstring(shown(outputs, cell)["text/html"])
    return {text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")}


def test_stream_shows_its_fields(outputs: Mapping[str, list[Any]]) -> None:
    assert table(outputs, "stream") == [["field", "type"], ["user", "str"], ["amount", "int"]]
    assert (
        "<b>SingleOutputStreamOperator</b> Orders &amp; more: Order" in shown(outputs, "stream")["text/html"]
    )
    assert shown(outputs, "stream")["text/plain"] == "<SingleOutputStreamOperator 'Orders & more' of Order>"


def test_program_is_drawn(outputs: Mapping[str, list[Any]]) -> None:
    drawn = names(outputs, "program")
    assert {"Orders & more", "Sink: Print", "hash"} <= drawn, drawn


def test_rows_are_table_with_results_of_keys(outputs: Mapping[str, list[Any]]) -> None:
    assert table(outputs, "rows") == [["user", "amount"], ["<ann>", "3"], ["bob", "2"], ["<ann>", "7"]]
    assert table(outputs, "first rows") == [["user", "amount"], ["<ann>", "3"]]


def test_failed_show_says_where_and_leaves_program_as_it_was(outputs: Mapping[str, list[Any]]) -> None:
    (error,) = (each for each in outputs["failed"] if each["output_type"] == "error")
    assert error["ename"] == "JobFailedError"
    assert "ZeroDivisionError" in error["evalue"]
    assert "in operator 'Division'" in error["evalue"]
    assert shown(outputs, "rows after failure") == shown(outputs, "rows")
    # The map is a step of the program, which the cell has added; nothing of `show` stays.
    assert names(outputs, "program after failure") - names(outputs, "program") == {"Division"}


def test_records_are_collected_in_kernel(outputs: Mapping[str, list[Any]]) -> None:
    (printed,) = (each["text"] for each in outputs["records"] if each.get("name") == "stdout")
    assert printed == "9\n"
