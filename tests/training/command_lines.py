"""The command line of a small training."""

from pathlib import Path


def settings_of(*, steps: int = 60, precision: str = "float32", model: str = "lstm") -> list[str]:
    """Return settings with a checkpoint every other step, so that a checkpoint is being written most of the time."""
    settings = {
        "encoder.kind": model, "encoder.d_model": 8, "tokens.d_embedding": 6, "encoder.dropout": 0.2,
        "encoder.dropout_recurrent": 0.2, "train.steps": steps, "train.batch_size": 4, "train.segment_length": 12,
        "train.checkpoint_every": 2, "train.validations": steps // 6, "train.patience": 15, "train.sample_tokens": 4,
        "train.precision": precision, "train.reset_state": 0.1,
    }  # fmt: skip
    return [f"{key}={value}" for key, value in settings.items()]


def command(text: Path, run: Path, settings: list[str]) -> list[str]:
    sets = [part for setting in settings for part in ("--set", setting)]
    return ["train", "char-lstm", "--train", str(text), "--out", str(run), "--threads", "1", *sets]
