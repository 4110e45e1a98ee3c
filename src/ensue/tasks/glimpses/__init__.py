"""Reading of images in glimpses: several for each symbol of a caption, then a stop."""

from ensue.tasks.entry import TaskEntry
from ensue.tasks.glimpses.recipe import GlimpsesRecipe

TASK = TaskEntry(
    recipe=GlimpsesRecipe,
    pipeline_tag="image-classification",
    parts="ensue.tasks.glimpses.model:GlimpseParts",
    job="ensue.tasks.glimpses.job:GlimpsesJob",
    pipeline="ensue.tasks.glimpses.pipeline:GlimpsesPipeline",
    commands=("predict", "evaluate", "inspect"),
    judged_by=("exact_match",),
    files=("frames.json", "labels.json"),
)
