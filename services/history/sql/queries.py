"""Runs SQL statements. The views that a statement mentions are created before it runs."""

from __future__ import annotations

import re

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from .errors import translate_error
from .reader import LogTables
from .statements import mentioned_tables
from .tables import table

_SHOW = re.compile(r"\s*show\b", re.IGNORECASE)


class Queries:
    """A session over the tables of one log."""

    def __init__(self, spark: SparkSession, log: LogTables) -> None:
        self._spark = spark
        self.log = log
        """May be replaced by a longer version of the same log; existing views do not change."""

    def run(self, statement: str, most: int | None = None) -> pa.Table | None:
        """Returns the result, at most `most` rows; None for a statement without a result, such as CREATE VIEW.

        Raises NoSuchTable, QueryFailed, ArchiveError, LogUnavailable.
        """
        names = list(self.log.tables)
        try:
            self.log.create_views(names if _SHOW.match(statement) else mentioned_tables(statement, names))
            found = self._spark.sql(statement)
            if not found.columns:
                return None
            return (found if most is None else found.limit(most)).toArrow()
        except AnalysisException as error:
            if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
                table((error.getMessageParameters() or {}).get("relationName", "").strip("`"))
            raise translate_error(error) from error
        except (PySparkException, Py4JError) as error:
            raise translate_error(error) from error
