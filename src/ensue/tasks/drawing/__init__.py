"""Drawing: images that are painted stroke by stroke from noise, with a bound on the probability of each (DRAW)."""

from ensue.tasks.drawing.recipe import DrawingRecipe
from ensue.tasks.entry import TaskEntry

TASK = TaskEntry(
    recipe=DrawingRecipe,
    pipeline_tag="unconditional-image-generation",
    parts="ensue.tasks.drawing.model:DrawingParts",
    job="ensue.tasks.drawing.job:DrawingJob",
    pipeline="ensue.tasks.drawing.pipeline:DrawingPipeline",
    commands=("generate", "evaluate", "inspect"),
    judged_by=("nats_per_image",),
    files=("image.json",),
)
