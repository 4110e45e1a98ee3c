"""Records of files, with file and line: rows of tables, JSON objects, lines. Views make labeled texts or pairs of them.

A format of records is a `Reader` in this folder, and its line in `READERS`; `ensue.data.detection.format_table` has its
suffixes. Parquet and the formats of guests become JSON lines in `ensue.data.row_files`.
"""

from ensue.data.records.json_objects import JsonObjects
from ensue.data.records.reader import Reader
from ensue.data.records.tables import DIALECTS

READERS: tuple[Reader, ...] = (*DIALECTS, JsonObjects())
"""The formats of records with columns or keys."""
