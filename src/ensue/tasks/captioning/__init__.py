"""Captioning: a text for an image, or for another series of vectors."""

from ensue.tasks.captioning.recipe import CaptioningRecipe
from ensue.tasks.entry import TaskEntry
from ensue.tasks.sequence_to_sequence import SEARCH

TASK = TaskEntry(
    recipe=CaptioningRecipe,
    parts="ensue.tasks.captioning.model:CaptionerParts",
    job="ensue.tasks.captioning.job:CaptioningJob",
    pipeline="ensue.tasks.captioning.pipeline:CaptioningPipeline",
    commands={
        "predict": SEARCH | {"n-best", "with", "shard"},
        "evaluate": SEARCH | {"compare", "with"},
        "inspect": SEARCH | {"target"},
        "score": frozenset({"with"}),
    },
    judged_by=("nats_per_token",),
    files=("frames.json", "tokenizer.json"),
)
