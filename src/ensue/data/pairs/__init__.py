"""Pairs of texts, source and target: read from the usual formats as `Pair`s. No torch here.

source = PairSource("train.en,train.de")
source.layout                            # what the files are taken for; print it
for pair in source:
    pair.sources, pair.targets
"""

from ensue.data.pairs.formats import FORMATS
from ensue.data.pairs.pair import Pair, PairChoice, PairLayout, Pairs, with_references
from ensue.data.pairs.source import PairSource
from ensue.data.records.record import Column

__all__ = ["FORMATS", "Column", "Pair", "PairChoice", "PairLayout", "PairSource", "Pairs", "with_references"]
