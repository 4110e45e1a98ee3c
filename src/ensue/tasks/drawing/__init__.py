"""Drawing: images that are painted stroke by stroke from noise, with a bound on the probability of each (DRAW)."""

from ensue.tasks.drawing.recipe import DrawingRecipe
from ensue.tasks.entry import TaskEntry

TASK = TaskEntry(
    recipe=DrawingRecipe,
    parts="ensue.tasks.drawing.model:DrawingParts",
    job="ensue.tasks.drawing.job:DrawingJob",
    pipeline="ensue.tasks.drawing.pipeline:DrawingPipeline",
    commands={
        "generate": frozenset({"out", "samples", "frames", "seed"}),
        "evaluate": frozenset({"draws"}),
        "inspect": frozenset(),
    },
    judged_by=("nats_per_image",),
    files=("image.json",),
)
