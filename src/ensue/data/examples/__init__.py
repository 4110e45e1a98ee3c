"""Labeled texts and pairs of texts: read from the usual formats, texts also written with other labels. No torch here.

source = DocumentSource("train.tsv")
source.layout                            # the detected format and columns; print it
for document in source:
    document.texts, document.labels
for pair in PairSource("train.en,train.de"):
    pair.sources, pair.targets
"""

from ensue.data.examples.example import Document, Pair, Pairs, StoredPairs, with_references
from ensue.data.examples.formats import DOCUMENT_FORMATS, PAIR_FORMATS, detect_documents, read_documents, write_document
from ensue.data.examples.layout import DocumentChoice, DocumentLayout, PairChoice, PairLayout
from ensue.data.examples.source import DocumentSource, PairSource
from ensue.data.records.record import Column

__all__ = [
    "DOCUMENT_FORMATS",
    "PAIR_FORMATS",
    "Column",
    "Document",
    "DocumentChoice",
    "DocumentLayout",
    "DocumentSource",
    "Pair",
    "PairChoice",
    "PairLayout",
    "PairSource",
    "Pairs",
    "StoredPairs",
    "detect_documents",
    "read_documents",
    "with_references",
    "write_document",
]
