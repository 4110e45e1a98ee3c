"""Records of files, with file and line: rows of tables, JSON objects, lines. Views make labeled texts or pairs of them.

A format of records is a `Reader` in this folder, and its line in the table of `ensue.data.detection.format_table`.
Parquet and the formats of extensions become JSON lines in `ensue.data.row_files`.
"""
