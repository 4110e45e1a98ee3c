"""The tables of keys in docs/recipes.md, from the schema of recipes. `python docs/recipe_keys.py` updates them.

Types, bounds and defaults come from the pydantic models, meanings from the docstring under each attribute. A test
checks that the page is up to date.
"""

from __future__ import annotations

import ast
import inspect
import json
import types
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ensue.extensions.bidirectional.recipe import (
    BidirectionalTrain,
    CharacterWords,
    ContextOutput,
    LookupWords,
    WordsOfText,
)
from ensue.extensions.frames.recipe import (
    CanvasSpecification,
    CaptionAttention,
    CaptionData,
    CaptionTrain,
    DrawingData,
    DrawingTrain,
    FrameFeatureSpecification,
    FramePredictionTrain,
    FramesData,
    FramesTrain,
    GlimpseSpecification,
    GridSpecification,
    LatentSpecification,
    MixtureHeadSpecification,
)
from ensue.extensions.minirocket.recipe import MiniRocketHead
from ensue.extensions.word_vectors.recipe import (
    CountedVectorsTable,
    DistilledVectorsTable,
    SampledVectorsTable,
    SensesTable,
    StaticVectorsTable,
    WordsTable,
    WordVectorsData,
    WordVectorsTrain,
)
from ensue.models.specification import (
    Attention,
    CellEncoder,
    ClockworkEncoder,
    Directions,
    ElmanEncoder,
    Encoder,
    GRUEncoder,
    HeadsEncoder,
    HiddenEncoder,
    NoEncoder,
    OriginEncoder,
    PairTokens,
    ProjectedEncoder,
    QRNNEncoder,
    RecurrentEncoder,
    TextHead,
    Tokens,
    TransformerEncoder,
    WindowEncoder,
    WordHead,
    ZoneoutEncoder,
)
from ensue.models.word_specification import (
    ClassHeadSpecification,
    ContextualSpecification,
    FeatureSpecification,
    PathHeadSpecification,
    PoolingHeadSpecification,
    SentenceFeatureSpecification,
    TagHeadSpecification,
)
from ensue.recipe import DataRecipe, Recipe, TrainRecipe
from ensue.recipe.tables import CorpusRecipe, CorpusTuning, DividedData, TokenizerRecipe, TuningRecipe
from ensue.tasks import task_names
from ensue.tasks.classification.recipe import ClassificationData
from ensue.tasks.labeling.recipe import CuttingData, LabelingData
from ensue.tasks.language_modeling.recipe import LanguageModelingTrain
from ensue.tasks.masked_language_modeling.recipe import (
    ContrastTable,
    HeadTable,
    InputTable,
    MaskedData,
    MaskingTable,
    PairsData,
    PairsTrain,
    SentencesTable,
    WordPieceTable,
)
from ensue.tasks.sequence_to_sequence.recipe import PairData, PairTrain, SearchTable
from ensue.tasks.words.recipe import TextsTrain, WordsTuning

PAGE = Path(__file__).with_name("recipes.md")
BEGIN, END = "<!-- written by recipe_keys.py -->", "<!-- end -->"

TABLES: list[tuple[str, type[BaseModel]]] = [
    ("At the top", Recipe),
    ("`[data]`", DataRecipe),
    ("`[data]` of examples, a part of which is kept for validation", DividedData),
    ("`[data]` of a language model", CorpusRecipe),
    ("`[data]` of a masked language model", MaskedData),
    ("`[data]` of a tagger", LabelingData),
    ("`[data]` of a cutter", CuttingData),
    ("`[data]` of a classifier", ClassificationData),
    ("`[data]` of frames", FramesData),
    ("`[data]` of a painter", DrawingData),
    ("`[data]` of captions", CaptionData),
    ("`[data]` from sequence to sequence", PairData),
    ("`[data]` of word vectors", WordVectorsData),
    ("`[tokenizer]` of a language model, and from sequence to sequence", TokenizerRecipe),
    ("`[tokenizer]` of a masked language model", WordPieceTable),
    ("`[tokenizer]` of a bidirectional language model", WordsOfText),
    ("`[tokenizer]` of word vectors", WordsTable),
    ('`[words]` of a bidirectional language model, `kind = "characters"`', CharacterWords),
    ('`[words]` of a bidirectional language model, `kind = "table"`', LookupWords),
    ('`[vectors]`, `kind = "cbow"` and `"skip-gram"`', SampledVectorsTable),
    ('`[vectors]`, `kind = "glove"`', CountedVectorsTable),
    ('`[vectors]`, `kind = "static"`, of imported files', StaticVectorsTable),
    ('`[vectors]`, `kind = "distilled"`', DistilledVectorsTable),
    ("`[senses]` of word vectors", SensesTable),
    ("`[masking]` of a masked language model", MaskingTable),
    ("`[input]` of a masked language model", InputTable),
    ("`[head]` of a masked language model", HeadTable),
    ("`[sentences]` of a masked language model", SentencesTable),
    ("`[data]` of sentence vectors", PairsData),
    ("`[sentences]` of sentence vectors", ContrastTable),
    ("`[train]` of sentence vectors", PairsTrain),
    ("`[tokens]` of a language model", Tokens),
    ('`[head]` of a language model; of a bidirectional one `kind = "softmax"`', WordHead),
    ('`[head]` of a bidirectional language model, `kind = "context"`', ContextOutput),
    ("`[tokens]` from sequence to sequence", PairTokens),
    ("`[features]` of a tagger or classifier, and from sequence to sequence", ContextualSpecification),
    ("`[features]` of a tagger or classifier", FeatureSpecification),
    ("`[features]` of a tagger", SentenceFeatureSpecification),
    ("`[features]` of frames", FrameFeatureSpecification),
    ("`[grid]` of captions", GridSpecification),
    ("`[encoder]`, every encoder", Encoder),
    ("`[encoder]`, every encoder but `window`, `transformer` and `none`", RecurrentEncoder),
    ("`[encoder]`, encoders `elman`, `gru`, `clockwork`, `lstm` and its variants", HiddenEncoder),
    ("`[encoder]`, encoders `elman`, `gru`, `lstm` and its variants", ZoneoutEncoder),
    ("`[encoder]`, encoders `lstm`, `peephole`, `coupled`, `layer-norm` and `projected`", CellEncoder),
    ('`[encoder]`, `kind = "window"`', WindowEncoder),
    ('`[encoder]`, `kind = "elman"`', ElmanEncoder),
    ('`[encoder]`, `kind = "projected"`', ProjectedEncoder),
    ('`[encoder]`, `kind = "gru"`', GRUEncoder),
    ('`[encoder]`, `kind = "clockwork"`', ClockworkEncoder),
    ('`[encoder]`, `kind = "qrnn"`', QRNNEncoder),
    ("`[encoder]`, encoders `slstm`, `mlstm`, `hgrn2`, `gated-deltanet`, `rwkv7`", HeadsEncoder),
    ('`[encoder]`, `kind = "transformer"`', TransformerEncoder),
    ('`[encoder]`, `kind = "none"`', NoEncoder),
    ('`[encoder]`, `kind = "origin"`, of a tagger or classifier', OriginEncoder),
    ("`[directions]` of a tagger or classifier", Directions),
    ("`[head]` of a tagger, of words or frames", PathHeadSpecification),
    ("`[head]` of a tagger of words", TagHeadSpecification),
    ("`[canvas]` of a painter", CanvasSpecification),
    ("`[attention]` from sequence to sequence", Attention),
    ("`[attention]` of captions", CaptionAttention),
    ("`[head]` of a classifier, of texts or frames", PoolingHeadSpecification),
    ("`[head]` of a classifier of texts", ClassHeadSpecification),
    ("`[head]` of a classifier of frames by MiniRocket", MiniRocketHead),
    ("`[head]` from sequence to sequence", TextHead),
    ("`[head]` of the next frame", MixtureHeadSpecification),
    ("`[latent]` of the next frame", LatentSpecification),
    ("`[glimpses]`", GlimpseSpecification),
    ("`[search]` from sequence to sequence", SearchTable),
    ("`[train]`", TrainRecipe),
    ("`[train]` of a language model", LanguageModelingTrain),
    ("`[train]` of a bidirectional language model", BidirectionalTrain),
    ("`[train]` of a tagger or classifier", TextsTrain),
    ("`[train]` of frames", FramesTrain),
    ("`[train]` of the next frame", FramePredictionTrain),
    ("`[train]` of a painter", DrawingTrain),
    ("`[train]` of captions", CaptionTrain),
    ("`[train]` from sequence to sequence", PairTrain),
    ("`[train]` of word vectors", WordVectorsTrain),
    ("`[tuning]`", TuningRecipe),
    ("`[tuning]` of a language model, causal or masked", CorpusTuning),
    ("`[tuning]` of a tagger or classifier of texts", WordsTuning),
]

INNER = ("data", "train", "tuning")
NAMES = {int: "whole number", float: "number", str: "text", bool: "yes or no"}


def tables() -> str:
    """Return all tables in Markdown."""
    parts = []
    for title, model in TABLES:
        parts += [f"### {title}", "", "| key | type | default | meaning |", "|---|---|---|---|", *rows(model), ""]
    return "\n".join(parts)


def rows(model: type[BaseModel]) -> Iterator[str]:
    """Yield a row of a table for each key."""
    docstrings = meanings(model)
    for name, field in own_fields(model):
        values = (
            " or ".join(f'`"{task}"`' for task in task_names()) if (model, name) == (Recipe, "task") else kind(field)
        )
        yield f"| `{field.alias or name}` | {values} | {default(field)} | {' '.join(docstrings[name].split())} |"


def own_fields(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """Yield the keys that this class defines, except tables of a recipe, and except `kind` without a docstring."""
    docstrings = meanings(model)
    for name in inspect.get_annotations(model):
        field = model.model_fields.get(name)
        if field is not None and (name != "kind" or name in docstrings) and not (model is Recipe and name in INNER):
            yield name, field


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of attributes by name."""
    tree = ast.parse(inspect.getsource(model)).body[0]
    assert isinstance(tree, ast.ClassDef)
    return {
        above.target.id: str(line.value.value)
        for above, line in pairwise(tree.body)
        if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name)
        if isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
    }


def kind(field: FieldInfo) -> str:
    """Return the type and the bounds of a field in words."""
    return describe(field.annotation, list(field.metadata))


def describe(annotation: Any, bounds: list[Any]) -> str:
    """Return a type and its bounds in words."""
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        bounds += [constraint for part in inner for constraint in getattr(part, "metadata", [])]
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{json.dumps(choice)}`" for choice in get_args(annotation))
    if get_origin(annotation) is list:
        return f"list of {describe(*get_args(annotation), bounds)}"
    return ", ".join([NAMES[annotation], *describe_bounds(bounds)])


def describe_bounds(bounds: list[Any]) -> Iterator[str]:
    """Yield each bound, such as `≥ 1`."""
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    for bound in bounds:
        for name, sign in signs.items():
            value = getattr(bound, name, None)
            if value is not None and abs(value) < 2**62:
                yield f"{sign} {value:,}"


def default(field: FieldInfo) -> str:
    """Return the default of a field as JSON."""
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    return "" if value is None or value == "" else f"`{json.dumps(value)}`"


def update(page: str) -> str:
    """Return the page with current tables."""
    before, _, remainder = page.partition(BEGIN)
    _, _, after = remainder.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(update(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
