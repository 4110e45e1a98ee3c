"""A trained model at work: text in, text and numbers out. Command line, server and notebook are thin clients of it."""

from ensue.pipeline.classification import ClassificationPipeline, Classified
from ensue.pipeline.labeling import LabeledSpan, LabeledWord, LabelingPipeline, TaggedSentence
from ensue.pipeline.language import LanguagePipeline, TokenScore
from ensue.pipeline.runs import Pipeline, load, train

__all__ = [
    "ClassificationPipeline",
    "Classified",
    "LabeledSpan",
    "LabeledWord",
    "LabelingPipeline",
    "LanguagePipeline",
    "Pipeline",
    "TaggedSentence",
    "TokenScore",
    "load",
    "train",
]
