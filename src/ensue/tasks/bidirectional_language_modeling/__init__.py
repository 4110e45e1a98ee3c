"""Bidirectional language modeling: predict each word from all words before it, and from all words behind it."""

from ensue.tasks.bidirectional_language_modeling.recipe import BidirectionalRecipe
from ensue.tasks.entry import TaskEntry

TASK = TaskEntry(
    recipe=BidirectionalRecipe,
    pipeline_tag="feature-extraction",
    parts="ensue.tasks.bidirectional_language_modeling.model:BidirectionalParts",
    job="ensue.tasks.bidirectional_language_modeling.job:BidirectionalJob",
    pipeline="ensue.tasks.bidirectional_language_modeling.pipeline:BidirectionalPipeline",
    commands=("embed", "neighbors", "evaluate", "score", "inspect"),
    judged_by=("nats_per_token", "noise_nats"),
)
