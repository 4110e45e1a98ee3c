"""Texts of a recipe as a folder of ids (`data/corpus/prepared.py`), as a run of the recipe would read them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ensue.data.corpus.cache import trained_tokenizer
from ensue.data.corpus.columns import ColumnSource, DatasetSource
from ensue.data.corpus.parallel_ids import encoded
from ensue.data.corpus.prepared import Prepared, prepare
from ensue.data.row_files import DatasetName
from ensue.data.sources import TextSource
from ensue.errors import DataError, RecipeError
from ensue.recipe import Recipe
from ensue.tasks import task_entry
from ensue.tasks.texts.corpus import CorpusJob, training_characters, training_source


def prepare_corpus(
    recipe: Recipe,
    folder: Path,
    *,
    column: str = "",
    processes: int = 1,
    shard_tokens: int = 1 << 28,
    say: Callable[[str], object] = lambda line: None,
) -> Prepared:
    """Makes the tokenizer of a recipe and the ids of its training and validation texts, by several processes.

    What a run of the recipe computes from the folder is what it computes from the texts. A folder that was left in the
    middle is gone on with. Raises RecipeError for a task that does not read ids, and DataError.
    """
    job = task_entry(recipe.task).job_class
    reader = job.reader_of(recipe) if issubclass(job, CorpusJob) else None
    data: Any = recipe.data
    if reader is None:
        raise RecipeError(
            f"a {recipe.what} reads its texts itself; prepare is for models that learn from a stream of ids"
        )

    def source_of(location: str) -> TextSource:
        if DatasetName.parse(location):
            if not column:
                raise DataError("a data set has columns; --column names one", location)
            return DatasetSource(location, column)
        if column:
            return ColumnSource(location, column, encoding=data.encoding)
        return TextSource(location, encoding=data.encoding)

    if not column and not DatasetName.parse(data.train):
        training_source(data)  # raises if there is none
    elif not data.train:
        raise DataError("no training text: --train PATH names a file, a folder or a glob")
    source = source_of(data.train)
    stop = None if data.valid else training_characters(source.count_characters(), data)
    table: Any = recipe.tokenizer.model_dump()  # type: ignore[attr-defined]
    tokenizer = trained_tokenizer(source, stop=stop, **table)
    texts = {"train": (source, 0, stop)}
    if data.valid:
        texts["valid"] = (source_of(data.valid), 0, data.valid_characters)
    elif stop is not None:
        texts["valid"] = (source, stop, stop + data.valid_characters)
    reads = reader(tokenizer)
    plan = {
        "texts": {part: [text.fingerprint(), start, end] for part, (text, start, end) in texts.items()},
        "table": table,
    }
    return prepare(
        folder, plan, texts, tokenizer, reads, encode=partial(encoded, reads, processes=processes),
        shard_tokens=shard_tokens, say=say,
    )  # fmt: skip
