"""Captioning: a text for an image, or for another series of vectors."""

from ensue.tasks.captioning.recipe import CaptioningRecipe
from ensue.tasks.entry import TaskEntry

TASK = TaskEntry(
    recipe=CaptioningRecipe,
    pipeline_tag="image-to-text",
    parts="ensue.tasks.captioning.model:CaptionerParts",
    job="ensue.tasks.captioning.job:CaptioningJob",
    pipeline="ensue.tasks.captioning.pipeline:CaptioningPipeline",
    commands=("predict", "evaluate", "inspect", "score"),
    judged_by=("nats_per_token",),
    files=("frames.json", "tokenizer.json"),
)
