"""Sequence to sequence: a text for a source text, such as a translation or a summary."""

from ensue.tasks.entry import TaskEntry
from ensue.tasks.sequence_to_sequence.recipe import SequenceToSequenceRecipe

TASK = TaskEntry(
    recipe=SequenceToSequenceRecipe, pipeline_tag="text2text-generation",
    parts="ensue.tasks.sequence_to_sequence.model:EncoderDecoderParts",
    job="ensue.tasks.sequence_to_sequence.job:SequenceToSequenceJob",
    pipeline="ensue.tasks.sequence_to_sequence.pipeline:SequencePipeline",
    commands=("predict", "evaluate", "inspect", "score"), judged_by=("nats_per_token",),
)  # fmt: skip
