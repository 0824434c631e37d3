"""The forms in which events are exported. Above it is `export`; below it `rows`, what a table has of a call."""

import csv
from collections.abc import Callable
from enum import StrEnum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from hookbus_cli.rows import COLUMNS, Value, row
from hookbus_schemas import ConfigError

if TYPE_CHECKING:
    from hookbus_subscribers import StoredEvent

GROUP_ROWS = 10_000
"""Rows after which a row group is written, and forgotten here."""

GROUP_CHARACTERS = 32 * 1024 * 1024
"""Characters in them after which it is written with fewer rows: texts that are stored beside an event count, too."""

MARKED = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "'")  # noqa: RUF001 - a spreadsheet reads them
"""How a text begins that a spreadsheet would run as a formula, and what marks such a text (OWASP, CSV injection)."""


class Format(StrEnum):
    """The forms."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


SUFFIXES = {".jsonl": Format.JSONL, ".ndjson": Format.JSONL, ".csv": Format.CSV, ".parquet": Format.PARQUET}


class Writer(Protocol):
    """Writes events to a file, one after the other."""

    def add(self, stored: "StoredEvent") -> None:
        """Write one event, or keep it until a few more have come."""

    def finish(self) -> None:
        """Write what was kept, and what a whole file ends with."""

    def give_up(self) -> None:
        """Write nothing more: the file will not be whole."""


def format_of(name: str, said: Format | None) -> Format:
    """Return the form to write: what was said, or what the file's suffix says.

    Raises:
        ConfigError: neither says one.
    """
    if said is not None:
        return said
    suffix = PurePath(name).suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise ConfigError(f"{name}: its suffix is none of {known}: say --format jsonl, csv or parquet")
    return SUFFIXES[suffix]


def writer_of(form: Format) -> Callable[[BinaryIO], Writer]:
    """Return what makes a writer of this form on a file.

    Raises:
        ConfigError: it needs what is not installed.
    """
    if form is Format.PARQUET:
        try:
            import pyarrow.parquet  # noqa: F401 - needed when the first group is written
        except ImportError as error:
            raise ConfigError("Parquet needs pyarrow: `pip install 'hookbus[parquet]'`") from error
    writers: dict[Format, Callable[[BinaryIO], Writer]]
    writers = {Format.JSONL: JsonLines, Format.CSV: Csv, Format.PARQUET: Parquet}
    return writers[form]


class JsonLines:
    """One JSON object a line: each event whole, as `hookbus events replay --json` prints it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def add(self, stored: "StoredEvent") -> None:
        """Write one line."""
        self._file.write(stored.event.model_dump_json().encode() + b"\n")

    def finish(self) -> None:
        """Do nothing: each line is whole."""

    def give_up(self) -> None:
        """Do nothing."""


class Csv:
    """A table as spreadsheets read it (RFC 4180, UTF-8), in which no text of others is a formula."""

    def __init__(self, file: BinaryIO) -> None:
        self._rows = csv.DictWriter(_Encoded(file), COLUMNS)
        self._rows.writeheader()

    def add(self, stored: "StoredEvent") -> None:
        """Write one row."""
        self._rows.writerow({column: marked(value) for column, value in row(stored.event).items()})

    def finish(self) -> None:
        """Do nothing: each row is whole."""

    def give_up(self) -> None:
        """Do nothing."""


class _Encoded:
    """Takes text and writes UTF-8; never closes the file beneath it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(text.encode())


def marked(value: Value) -> Value:
    """Return a text that a spreadsheet shows and does not run: with ``'`` in front where it needs one.

    A text that begins with ``'`` gets another, so taking one off where there is one gives back every text as it was.
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(MARKED) else value


class Parquet:
    """A table for analysis, written in groups of rows, so that memory stays flat however long the record is."""

    def __init__(self, file: BinaryIO) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        kinds = {str: pa.string(), int: pa.int64(), float: pa.float64()}
        columns = {name: kinds[kind] for name, kind in COLUMNS.items()} | {"time": pa.timestamp("ms", tz="UTC")}
        self._schema = pa.schema(columns.items())
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._characters = 0

    def add(self, stored: "StoredEvent") -> None:
        """Keep one row, and write the group if it is large enough."""
        columns = row(stored.event)
        self._rows.append(columns | {"time": stored.event.at_ms})
        self._characters += sum(len(value) for value in columns.values() if isinstance(value, str))
        if len(self._rows) >= GROUP_ROWS or self._characters >= GROUP_CHARACTERS:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa

        self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows.clear()
        self._characters = 0

    def finish(self) -> None:
        """Write the last group, and the footer without which nobody takes the file for a whole one."""
        if self._rows:
            self._write()
        self._writer.close()

    def give_up(self) -> None:
        """Keep it from writing a footer when it is forgotten."""
        self._writer.is_open = False
