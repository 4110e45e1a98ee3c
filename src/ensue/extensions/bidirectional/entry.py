"""Bidirectional language modeling: predict each word from all words before it, and from all words behind it."""

from ensue.extensions.bidirectional.recipe import BidirectionalRecipe
from ensue.tasks.entry import TaskEntry

TASK = TaskEntry(
    recipe=BidirectionalRecipe,
    pipeline_tag="feature-extraction",
    parts="ensue.extensions.bidirectional.model:BidirectionalParts",
    job="ensue.extensions.bidirectional.job:BidirectionalJob",
    pipeline="ensue.extensions.bidirectional.pipeline:BidirectionalPipeline",
    commands=("embed", "neighbors", "evaluate", "score", "inspect"),
    judged_by=("nats_per_token", "noise_nats"),
)
