"""Binary files that are taken for text: what they are, by their first bytes, and what to do with them."""

_AS_CSV = "a spreadsheet ({}); save the sheet as CSV in UTF-8"
_ZIP = b"PK\x03\x04"
_ZIPPED = {
    b"xl/": _AS_CSV.format("Excel, .xlsx"),
    b"opendocument.spreadsheet": _AS_CSV.format("OpenDocument, .ods"),
    b"word/": "a Word document (.docx); save it as text in UTF-8",
}
_BINARY = {
    _ZIP: "a zip archive; unpack it first",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old Excel or Word file (.xls, .doc); save it as CSV or text in UTF-8",
    b"PAR1": "a Parquet file; ensue prepare reads it for language models; labeled data: name it .parquet",
    b"ARROW1": "an Arrow file; save it as CSV or JSON lines",
    b"%PDF-": "a PDF; save its text in UTF-8",
    b"\x1f\x8b": "compressed by gzip; with a name that ends in .gz it is read",
    b"\xfd7zXZ": "compressed by xz; with a name that ends in .xz it is read",
    b"BZh": "compressed by bzip2; unpack it, or compress it as .gz or .xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; unpack it, or compress it as .gz or .xz",
    b"SQLite format 3\0": "an SQLite database; save the table as CSV or JSON lines",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"\x93NUMPY": "a numpy array",
}
"""Binary formats by their first bytes (a zip by what is in it), with what a person may do."""


def binary_format(start: bytes) -> str:
    """The kind of a file that begins with these bytes of a known binary format, and what to do; "" for another file."""
    what = next((what for magic, what in _BINARY.items() if start.startswith(magic)), "")
    if what == _BINARY[_ZIP]:
        inside = (what for part, what in _ZIPPED.items() if part in start)
        what = next(inside, what)
    return what
