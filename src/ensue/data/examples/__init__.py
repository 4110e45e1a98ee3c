"""Labeled texts and pairs of texts. These modules do not import torch.

source = DocumentSource("train.tsv")
source.layout                                 # the detected format and columns
for document in source:                       # a line of train.tsv
    document.texts, document.labels
for pair in PairSource("train.en,train.de"):  # a line of train.en and the same line of train.de
    pair.sources, pair.targets
"""

from ensue.data.examples.layout import Document as Document
from ensue.data.examples.layout import DocumentLayout as DocumentLayout
from ensue.data.examples.layout import Pair as Pair
from ensue.data.examples.layout import PairLayout as PairLayout
from ensue.data.examples.layout import Pairs as Pairs
from ensue.data.examples.layout import with_references as with_references
from ensue.data.examples.source import DocumentSource as DocumentSource
from ensue.data.examples.source import PairSource as PairSource
