"""Reads CSV files (RFC 4180): a record for each row, by the names in the first line.

A file is divided into splits at line ends, unless values may have line breaks (`multiline`) or it is compressed. That
is safe because it is checked: a row whose value has a line break has a line with an odd number of quotes, and such a
line fails the job.

Values have the declared types; without them they are text. An unquoted empty value is None, or the empty text of a
`str`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from ....graph.csv_options import to_csv_options
from ....types import ClassOf, Pickled, RecordType, Scalar
from ...common.failures import TaskError
from .column_selection import ColumnSelection, select_columns
from .file_reader import SPLIT_BYTES, FileChunk, bounds, byte_splits, place_in_split, read_range, unreadable
from .parquet_reader import ROWS
from .source_storage import FoundFile, open_file
from .text_reader import codec_of, split_lines

_BLOCK_BYTES: Final = 1 << 20
_MOST_HEADER_BYTES: Final = 1 << 20
_BOM: Final = b"\xef\xbb\xbf"


class CsvFileReader:
    """Records by column name; dictionaries for a pickled record type.

    `columns`: only these; None: all needed. In files without a header: the names of all columns; None: the fields of
    the class, or f0, f1, ...
    """

    def __init__(
        self, record_type: RecordType, columns: Sequence[str] | None, options: Mapping[str, str]
    ) -> None:
        self._record_type = record_type
        self._columns = columns
        self._options = to_csv_options(options)

    def splits(self, file: FoundFile) -> int:
        is_whole = self._options.multiline or codec_of(file.path)
        return 1 if is_whole else byte_splits(file.size)

    def read(self, file: FoundFile, split: int) -> Iterator[FileChunk]:
        where = "its beginning" if split == 0 else f"byte {split * SPLIT_BYTES}"
        try:
            codec = codec_of(file.path)
            with closing(open_file(file.path)) as source:
                names, first = self._header(file.path, source, codec)
            if not names:
                return
            selected = select_columns(file.path, names, self._record_type, self._columns)
            with closing(open_file(file.path)) as source:
                if self._options.multiline:
                    whole = pa.CompressedInputStream(source, codec) if codec else source
                    batches = self._parse(whole, names, selected)
                elif codec:
                    whole = pa.CompressedInputStream(source, codec)
                    batches = (
                        batch
                        for rows in _blocks(whole, first)
                        for batch in self._parse_rows(file.path, rows, names, selected)
                    )
                else:
                    begin, end = bounds(source, file.size, split, b"\n", first)
                    rows = read_range(file.path, begin, end, source)
                    batches = self._parse_rows(file.path, rows, names, selected)
                for batch in batches:
                    for start in range(0, batch.num_rows, ROWS):
                        yield selected.to_chunk(self._filled(batch.slice(start, ROWS), selected))
        except (OSError, pa.ArrowException, csv.Error, UnicodeError) as error:
            raise unreadable(file.path, where, error) from error

    def place(self, split: int, record: int) -> str:
        return place_in_split(split, "row", record)

    def _header(self, path: str, source: Any, codec: str | None) -> tuple[list[str], int]:
        """Returns the names of the columns, and where the rows begin; no names if there are no rows."""
        stream = pa.CompressedInputStream(source, codec) if codec else source
        data = b""
        while b"\n" not in data and (more := stream.read(1 << 16)):
            data += more
            if len(data) > _MOST_HEADER_BYTES:
                raise TaskError(
                    f"{path} has a first line of more than {_MOST_HEADER_BYTES} bytes: is it CSV?"
                )
        line = data.partition(b"\n")[0]
        text = line.removeprefix(_BOM).removesuffix(b"\r").decode()
        options = self._options
        quoting: Any = {"quotechar": options.quote} if options.quote else {"quoting": csv.QUOTE_NONE}
        found = next(csv.reader([text], delimiter=options.delimiter, **quoting), [])
        if options.header:
            first = min(len(data), len(line) + 1)
            return (found, first) if first < len(data) or stream.read(1) else ([], first)
        start = len(_BOM) if line.startswith(_BOM) else 0
        if self._columns is not None:
            return list(self._columns), start
        if isinstance(self._record_type, ClassOf):
            return [name for name, _ in self._record_type.fields], start
        return [f"f{i}" for i in range(len(found))], start

    def _parse_rows(
        self, path: str, rows: bytes, names: list[str], selected: ColumnSelection
    ) -> Iterator[pa.RecordBatch]:
        """Yields complete rows that have no line breaks in values."""
        if not rows:
            return iter(())
        quote = self._options.quote
        if quote and quote.encode() in rows:
            lines = split_lines(rows)
            odd = pc.bit_wise_and(pc.count_substring(lines, quote), 1)
            if (at := pc.index(odd, pa.scalar(1, odd.type)).as_py()) >= 0:
                raise TaskError(
                    f"{path}: a line has an odd number of quotes ({quote}): {lines[at].as_py():.60}; set multiline if"
                    " values have line breaks, or quote='' if values have no quotes"
                )
        # One block: Arrow would divide rows also at a carriage return in quotes.
        return self._parse(pa.BufferReader(rows), names, selected, rows_bytes=len(rows))

    def _parse(
        self, source: Any, names: list[str], selected: ColumnSelection, *, rows_bytes: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """`rows_bytes`: the size of a source of rows without a header; None: it is a whole file."""
        options = self._options
        types = (
            {name: pa.string() for name in names}
            if isinstance(self._record_type, Pickled)
            else {
                name: of.arrow_type()
                for name, (_, of) in zip(selected.names, self._record_type.columns(), strict=True)
            }
        )
        reader = arrow_csv.open_csv(
            source,
            arrow_csv.ReadOptions(
                use_threads=False,
                block_size=rows_bytes or _BLOCK_BYTES,
                column_names=names,
                skip_rows=int(options.header and rows_bytes is None),
            ),
            arrow_csv.ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote or False,
                newlines_in_values=options.multiline,
                # A line without text is a row of one column without a value.
                ignore_empty_lines=len(names) > 1,
            ),
            arrow_csv.ConvertOptions(
                column_types=types,
                include_columns=list(selected.in_file or names[:1]),
                null_values=[options.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        return iter(reader)

    def _filled(self, batch: pa.RecordBatch, selected: ColumnSelection) -> pa.RecordBatch:
        """Puts the empty text in place of a missing value where the type is `str`."""
        if self._options.null:
            return batch
        if isinstance(self._record_type, Pickled):
            texts = set(selected.in_file)
        else:
            columns = zip(selected.names, self._record_type.columns(), strict=True)
            texts = {name for name, (_, of) in columns if of == Scalar("str")}
        for index, name in enumerate(batch.schema.names):
            column = batch.column(index)
            if name in texts and column.null_count:
                batch = batch.set_column(index, name, column.fill_null(""))
        return batch


def _blocks(stream: Any, skipped: int) -> Iterator[bytes]:
    """Yields whole lines of a stream, behind its first bytes."""
    rest = b""
    to_skip = skipped
    while data := stream.read(_BLOCK_BYTES):
        dropped = min(to_skip, len(data))
        to_skip -= dropped
        complete, mark, behind = (rest + data[dropped:]).rpartition(b"\n")
        if mark:
            yield complete + mark
        rest = behind
    if rest:
        yield rest
