"""Hyperparameter search, comparison of runs, and experiment trackers."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="experiments",
    commands={name: "ensue.extensions.experiments.command:" + name for name in ("search", "compare")},
    trackers={
        "csv": "ensue.extensions.experiments.trackers:CsvFile",
        "tensorboard": "ensue.extensions.experiments.trackers:TensorBoard",
        "wandb": "ensue.extensions.experiments.trackers:WeightsAndBiases",
    },
    names={
        "compare": "ensue.extensions.experiments.comparison:compare",
        "comparison": "ensue.extensions.experiments.comparison",
    },
)
