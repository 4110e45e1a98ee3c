"""Detection of formats from the user's choice, the names of files, or the first lines.

`format_table` detects the format if the kind of data is known; `kind` detects both.
"""
