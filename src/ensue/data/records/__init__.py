"""Records of files: rows of tables, JSON objects, or lines, with their place in the file.

To add a format of records, add a `Reader` in this folder and a line in `ensue.data.detection.format_table`.
"""
