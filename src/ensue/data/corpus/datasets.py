"""The texts in a column of a data set of the package `datasets` (Hugging Face), as running text.

`hf:NAME`, `hf:NAME,CONFIGURATION` or either with `@SPLIT` names it. NAME is a folder that `save_to_disk` has written,
or a name of the Hub. Data that are not on this machine are downloaded only if HF_HUB_OFFLINE=0 asks for it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ensue.data.corpus.columns import ROWS, ColumnSource
from ensue.errors import DataError, EnsueError, in_one_line, nearest

SAVED = ("dataset_dict.json", "state.json")
"""A file of these names is in a folder that `save_to_disk` has written, for several splits or for one."""


class DatasetName(NamedTuple):
    """A data set, its configuration ("": the only one), and a split ("": the only one, or train)."""

    name: str
    configuration: str
    split: str

    @classmethod
    def parse(cls, location: str) -> DatasetName | None:
        """The data set of a location; None if it names files. Raises DataError if it has no name."""
        if not location.startswith("hf:"):
            return None
        found = re.fullmatch(r"hf:([^,@]+)(?:,([^,@]+))?(?:@([^,@]+))?", location)
        if found is None:
            raise DataError("expected such as hf:NAME, hf:NAME,CONFIGURATION or hf:NAME@SPLIT", location)
        return cls(*(part or "" for part in found.groups()))


class DatasetSource(ColumnSource):
    """A text source whose text is that of a column of a data set.

    Raises DataError for a data set that is not on this machine, damaged, or without this configuration, split or
    column, and EnsueError without the package.
    """

    def __init__(self, location: str, column: str) -> None:
        name = DatasetName.parse(location)
        assert name is not None
        self.location, self.encoding, self.column = location, "utf-8", column
        self.dataset, self.split = _found(name, location)
        if column not in self.dataset.column_names:
            raise self._missing(self.dataset.column_names, location)
        self.paths = tuple(Path(file["filename"]) for file in self.dataset.cache_files)
        if not any(self._blocks()):
            raise DataError("the text is empty", location)

    def fingerprint(self) -> str:
        """A digest of the files' bytes, of the rows that are read of them, and of the column."""
        return f"{super().fingerprint()}-{json.dumps([self.split, len(self.dataset)])}"

    def _texts(self) -> Iterator[str | None]:
        batches = self.dataset.select_columns([self.column]).with_format(None).iter(ROWS)
        for number, value in enumerate(chain.from_iterable(batch[self.column] for batch in batches), 1):
            yield self._text(value, self.location, number)


def _found(name: DatasetName, location: str) -> tuple[Any, str]:
    """The data set, whose rows are read from files that are mapped, and the name of its split."""
    if find_spec("datasets") is None:
        raise EnsueError("reading data sets by name needs the package datasets: pip install 'ensue[datasets]'")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the package is imported
    import datasets  # noqa: PLC0415 (an extra)
    from pyarrow import ArrowException  # noqa: PLC0415

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    is_saved = any((Path(name.name) / file).is_file() for file in SAVED)
    try:
        if not is_saved:
            splits = datasets.load_dataset(name.name, name.configuration or None)
        elif name.configuration:
            raise DataError(f"a folder has no configurations; found {name.configuration}", location)
        else:
            splits = datasets.load_from_disk(name.name)
    except ConnectionError:
        raise DataError("not on this machine; with HF_HUB_OFFLINE=0 it is downloaded", location) from None
    except (OSError, ValueError, KeyError, TypeError, ArrowException, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"cannot be read: {in_one_line(str(error))}", location) from None
    if not isinstance(splits, dict):
        splits = {name.split: splits}
    split = name.split or ("train" if len(splits) > 1 else next(iter(splits)))
    if split not in splits:
        raise DataError(f'no split "{split}"{nearest(split, splits)}; it has {", ".join(splits)}', location)
    return splits[split], split
