"""Labeled texts: read from the usual formats as `Document`s, and written back with other labels. No torch here.

layout = detect("train.tsv")             # what the file is taken for; print it
for document in read("train.tsv", layout):
    document.texts, document.labels
"""

from ensue.data.documents.document import Choice, Column, Document, Layout
from ensue.data.documents.formats import FORMATS, detect, detect_lines, read, read_lines, write
from ensue.data.documents.records import bounded

__all__ = [
    "FORMATS",
    "Choice",
    "Column",
    "Document",
    "Layout",
    "bounded",
    "detect",
    "detect_lines",
    "read",
    "read_lines",
    "write",
]
