"""Sequence to sequence: a text from a text, such as a translation, a summary, an inflected form, an answer."""

from ensue.tasks.entry import TaskEntry
from ensue.tasks.sequence_to_sequence.recipe import SequenceToSequenceRecipe

TASK = TaskEntry(
    recipe=SequenceToSequenceRecipe,
    pipeline_tag="text2text-generation",
    parts="ensue.tasks.sequence_to_sequence.model:EncoderDecoderParts",
    job="ensue.tasks.sequence_to_sequence.job:SequenceToSequenceJob",
    pipeline="ensue.tasks.sequence_to_sequence.pipeline:SequencePipeline",
    commands=("predict", "evaluate", "inspect", "score"),
    judged_by=("nats_per_token",),
)
