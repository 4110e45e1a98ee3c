"""The parts of the package that are mutated, which are all of them, and the tests near a file.

Tests are named by the part between `test_` and `.py`, in any folder, so that a moved file is still found.
"""

from pathlib import Path

GROUPS: dict[str, list[str]] = {
    "engine": ["engine"], "nn": ["nn", "testing"], "decode": ["decode"], "data": ["data"], "metrics": ["metrics"],
    "runs": ["runs", "training", "trackers"], "models": ["models"], "text": ["text"], "tasks": ["tasks"],
    "inspection": ["inspection"], "exchange": ["extensions/exporting", "extensions/importing", "extensions/hub"],
    "serving": ["extensions/serving"], "annotating": ["extensions/annotating"],
    "experiments": ["extensions/experiments", "extensions/estimators"], "frames": ["extensions/frames"],
    "bidirectional": ["extensions/bidirectional"], "localization": ["extensions/localization"],
    "surveying": ["extensions/surveying"], "extensions": ["extensions"], "recipe": ["recipe", "recipes"],
    "cli": ["cli", "console"], "rest": ["."],
}  # fmt: skip
"""Folders of src/ensue. A file belongs to the first group that contains it, and the last one contains all."""

TESTS_OF_GROUPS: dict[str, list[str]] = {
    "engine": [f"engine/test_{name}" for name in (
        "uses", "operations", "steps", "random_steps", "untraceable_steps", "memory", "engine", "compiler", "library",
    )],
    "nn": ["laws"],
    "decode": ["sampling", "generation", "search", "beam_of_models", "beam"],
    "data": [
        "batches", "buckets", "cache", "columns", "conllu", "table_columns", "source", "writing", "documents",
        "formats", "json_sentences", "json_array", "class_files", "semicolons", "pairs", "sources", "kind",
        "vectors",
    ],
    "metrics": [f"metrics/test_{name}" for name in ("classification", "labeling", "language")],
    "runs": [
        "run_directory", "schedule", "loop", "resume", "damaged_runs", "failures", "labeling_data",
        "classification_data", "labeling_job", "classification_job", "pictures", "pretrained", "device", "trackers",
    ],
    "models": [f"models/test_{name}" for name in (
        "encoders", "tagger", "classifier", "tag_heads", "word_features", "compiled_decoder",
        "masked_language_model",
    )],
    "text": [f"text/test_{name}" for name in (
        "tokenizers", "tokens", "schemes", "labels", "classes", "lexicon", "special_tokens", "written_words",
        "masked_tokens", "document_stream", "character_ngrams",
    )],
    "tasks": [
        "labeling_pipeline", "classification_pipeline", "sequence_pipeline", "masked_pipeline", "pipeline", "tasks",
        "text_length", "passages", "encoded_texts", "layered_reader", "bidirectional", "captions",
    ],
    "exchange": [
        "importing", "static_vectors", "layers", "onnx/test_runs", "onnx/test_frames", "language_program",
        "translator_program",
    ],
    "inspection": [
        "numbers", "pages", "console", "tagger_view", "classifier_view", "language_view", "sequence_view",
        "frame_views", "selection",
    ],
    "serving": ["chooser", "stopping", "completions", "application", "hostile", "worker", "inspector"],
    "annotating": ["annotating/test_doubts", "annotating/test_choice"],
    "experiments": ["experiments/test_changes", "experiments/test_search", "test_trackers", "compare_command"],
    "frames": ["test_frames", "test_captions", "test_drawing", "test_glimpses", "frame_prediction", "captioner"],
    "bidirectional": ["bidirectional", "senses", "word_uses"],
    "localization": ["glossary", "markup", "tmx", "adapters", "messages"],
    "surveying": [f"surveying/test_{name}" for name in ("data_command", "summary", "pairs")],
    "extensions": ["gradients_command", "word_vectors", "test_updates", "pair_counts"],
    "recipe": ["recipe", "recipe_tables", "reference_pages"],
    "cli": ["commands", "predict", "notices", "streams", "bad_input", "bad_labels"],
    "rest": ["arguments", "errors", "parsing", "processor", "cache_command", "compare_command", "minimal_pairs"],
}  # fmt: skip
"""The tests of a group, run for each of its files after nearer ones."""

TESTS_OF_FILES: dict[str, list[str]] = {
    "scores": ["scores", "feedback", "cross_attention"], "attentional": ["attentional", "feedback"],
    "context": ["attentional"], "cross": ["cross_attention", "copying"], "feedback": ["feedback"],
    "multi_head": ["attention_against_torch", "states"], "border": ["borders", "border", "border_cases"],
    "chain": ["chain", "crf"], "crf": ["crf", "tag_heads"], "dropout": ["dropout", "encoders"],
    "embeddings": ["encoders", "word_features"], "gru": ["hand_worked", "recurrent_against_torch"],
    "initialization": ["recurrent_against_torch", "encoders"], "layer": ["states", "recurrent_against_torch", "taps"],
    "linear_recurrence": ["minimal", "scan"], "lstm": ["hand_worked", "recurrent_against_torch"],
    "positions": ["attention_against_torch", "states"], "products": ["bf16_kernels"],
    "softmax": ["linear_cross_entropy", "encoders"], "transformer": ["attention_against_torch"],
}  # fmt: skip
"""Tests of a file, run before those with its name and those of its group."""


def near(tests: Path, path: str, group: str) -> list[str]:
    """Return the test files for a mutant of the file at `path`, the nearest first."""
    stem = Path(path).stem
    names = [*TESTS_OF_FILES.get(stem, []), stem, *TESTS_OF_GROUPS[group]]
    paths = {str(file): None for name in names for file in sorted(tests.rglob(f"{_file(name)}.py"))}
    return list(paths)


def missing(package: Path, tests: Path) -> list[str]:
    """Return the names in these tables that do not exist."""
    names = {name for table in (TESTS_OF_GROUPS, TESTS_OF_FILES) for files in table.values() for name in files}
    stems = {path.stem for folders in GROUPS.values() for name in folders for path in (package / name).rglob("*.py")}
    missing_tests = sorted(name for name in names if not list(tests.rglob(f"{_file(name)}.py")))
    return missing_tests + sorted(TESTS_OF_FILES.keys() - stems)


def _file(name: str) -> str:
    folder, _, last = name.rpartition("test_")
    return f"{folder}test_{last}"
