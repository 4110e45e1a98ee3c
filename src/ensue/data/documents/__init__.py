"""Labeled texts: read from the usual formats as `Document`s, and written back with other labels. No torch here.

source = DocumentSource("train.tsv")
source.layout                            # what the file is taken for; print it
for document in source:
    document.texts, document.labels
"""

from ensue.data.documents.document import Choice, Document, Layout
from ensue.data.documents.formats import FORMATS, detect_lines, read_lines, write
from ensue.data.documents.source import DocumentSource
from ensue.data.records.record import Column

__all__ = ["FORMATS", "Choice", "Column", "Document", "DocumentSource", "Layout", "detect_lines", "read_lines", "write"]
