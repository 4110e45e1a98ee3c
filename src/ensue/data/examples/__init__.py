"""Labeled texts and pairs of texts: read from the usual formats, texts also written with other labels. No torch here.

source = DocumentSource("train.tsv")
source.layout                            # the detected format and columns; print it
for document in source:
    document.texts, document.labels
for pair in PairSource("train.en,train.de"):
    pair.sources, pair.targets
"""

from ensue.data.examples.example import Document, Pair, Pairs, with_references
from ensue.data.examples.layout import DocumentLayout, PairLayout
from ensue.data.examples.source import DocumentSource, PairSource

__all__ = [
    "Document",
    "DocumentLayout",
    "DocumentSource",
    "Pair",
    "PairLayout",
    "PairSource",
    "Pairs",
    "with_references",
]
