"""The recipe of a classifier of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from ensue.data.detection.format_table import TEXTS, settings_of
from ensue.models.specification import Path
from ensue.models.word_specification import ClassHeadSpecification, ColumnName
from ensue.recipe.tables import DividedData
from ensue.tasks.words.recipe import Splitter, WordsRecipe

LengthOrZero = Annotated[int, Field(ge=0, le=2_000_000_000)]

if TYPE_CHECKING:
    DataFormat = str
else:
    DataFormat = Literal[settings_of(TEXTS)]


class ClassificationData(DividedData):
    """The table `[data]` of a classifier."""

    format: DataFormat = "auto"
    """The format of the files; auto: by their names and first lines."""
    texts: list[ColumnName] = Field(default_factory=list)
    """The columns or keys of the text, or of the two texts of a pair; empty: found by names or contents."""
    labels: ColumnName = ""
    """The column or key of the label; empty: found by name or contents."""
    joined: bool = False
    """Whether the columns of `texts` are joined to one text. If not, two columns are a pair."""
    header: Literal["auto", "yes", "no"] = "auto"
    """Whether the first row of a table names the columns."""
    separator: str = ""
    """The character between several labels in a field; empty: a field is one label. fastText and
    JSON lists need none.
    """
    teacher: Path = ""
    """A file of JSON lines with `texts` and `probabilities`, as `predict --json` prints them. What it says of training
    texts is learned in place of their labels (`ensue distill`).
    """
    splitter: Splitter = "simple"
    """How text is cut into words."""
    max_tokens: LengthOrZero = 0
    """Longer texts are cut to this many words (each text of a pair by itself); 0: not cut."""
    keep: Literal["start", "end", "both"] = "start"
    """Which part of a longer text is kept."""
    segment_tokens: LengthOrZero = 0
    """Texts are read in segments of this many words, with carried state; needs `directions.bidirectional = false`. 0:
    in one piece.
    """


class ClassificationRecipe(WordsRecipe):
    """The recipe of a classifier."""

    what: ClassVar[str] = "classifier"
    reads: ClassVar[str] = "texts, or pairs of texts, with labels"
    unit: ClassVar[str] = "a text of words"
    keeps_examples: ClassVar[bool] = True
    most_words: ClassVar[int] = 250_000
    too_long: ClassVar[str] = "cut it, or train with data.max_tokens, which reads a part of long texts"

    task: Literal["classification"] = "classification"
    data: ClassificationData = ClassificationData()
    head: ClassHeadSpecification = ClassHeadSpecification()
