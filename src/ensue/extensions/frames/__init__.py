"""Models of series of real vectors such as sounds and images: classification, labeling, prediction and generation."""

from ensue.extension import Extension

FORMER_TASKS = "captioning", "drawing", "frame_prediction", "glimpses"
FORMER = {
    "data.frames.series": "data.series", "metrics.frames": "frame_prediction.model",
    "metrics.symbols": "glimpses.model", "tasks.classification.frames": "classification",
    "tasks.frames.pipeline": "tasks.pipeline", "tasks.glimpses.view": "glimpses.pipeline",
    "tasks.labeling.frames": "labeling", **{f"tasks.{task}.pipeline": f"{task}.pipeline" for task in FORMER_TASKS},
}  # fmt: skip
"""Former names of modules in the package `ensue`, mapped to their names in this package."""

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
        "ensue.extensions.frames",
    ),
    names={former: f"ensue.extensions.frames.{module}" for former, module in FORMER.items()},
    generate_options={"frames": (int, "For models of frames and images: the number of frames to write, such as 100.")},
    data_kinds={"frames": "ensue.extensions.frames.report:FrameKind"},
    needs=("surveying",),
)
