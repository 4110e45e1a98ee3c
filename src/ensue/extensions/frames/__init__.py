"""Series of real vectors (frames, sounds, images): classification, labeling, prediction, drawing, captions."""

from ensue.extension import Extension

TASKS = "captioning", "drawing", "frame_prediction", "glimpses"
FORMER = {
    "data.frames.series": "data.series", "metrics.frames": "frame_prediction.model",
    "metrics.symbols": "glimpses.symbols", "tasks.classification.frames": "classification",
    "tasks.frames.pipeline": "tasks.pipeline", "tasks.glimpses.view": "glimpses.pipeline",
    "tasks.labeling.frames": "labeling", **{f"tasks.{task}.pipeline": f"{task}.pipeline" for task in TASKS},
}  # fmt: skip
"""Former names of modules of `ensue`, and their places here."""

EXTENSION = Extension(
    name="frames",
    tasks={
        "frame-classification": "ensue.extensions.frames.recipe:CLASSIFICATION",
        "frame-labeling": "ensue.extensions.frames.recipe:LABELING",
        "frame-prediction": "ensue.extensions.frames.recipe:PREDICTION",
        "drawing": "ensue.extensions.frames.recipe:DRAWING",
        "glimpses": "ensue.extensions.frames.recipe:GLIMPSES",
        "captioning": "ensue.extensions.frames.recipe:CAPTIONING",
    },
    recipes=dict.fromkeys(
        ("caption-lstm", "classify-frames", "draw", "predict-frames", "read-glimpses", "storn", "tag-frames", "vrnn"),
        "ensue.extensions.frames.recipes",
    ),
    names={former: f"ensue.extensions.frames.{module}" for former, module in FORMER.items()},
    data_kinds={"frames": "ensue.extensions.frames.report:FrameKind"},
)
