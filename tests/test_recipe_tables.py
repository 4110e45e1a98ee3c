"""The tables of three tasks' recipes: unknown keys are errors, and recipes with all defaults are read back equal."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ensue.errors import RecipeError
from ensue.models.specification import EncoderSpecification
from ensue.recipe import Recipe, read_recipe, validate_recipe
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.language_modeling.recipe import LanguageModelingRecipe
from training.tiny import some_slow

SCHEMAS: dict[str, type[Recipe]] = {
    "language-modeling": LanguageModelingRecipe,
    "labeling": LabelingRecipe,
    "classification": ClassificationRecipe,
}
ENCODERS = {
    encoder: schema
    for schema in get_args(get_args(EncoderSpecification)[0])
    for encoder in get_args(schema.model_fields["kind"].annotation)
}
TABLES = ["data", "tokenizer", "features", "tokens", "directions", "head", "train"]


def keys_of(schema: type[BaseModel]) -> list[str]:
    """Return the names of a table's keys in recipes."""
    return [field.alias or name for name, field in schema.model_fields.items()]


class Place(NamedTuple):
    """A table of a task's recipe and its keys."""

    task: str
    table: str
    encoder: str
    keys: list[str]

    @property
    def tested_keys(self) -> list[str]:
        """The keys that the LSTM, which is tested too, does not have, or the first key."""
        others = keys_of(ENCODERS["lstm"]) if self.table == "encoder" and self.encoder != "lstm" else ()
        return [key for key in self.keys if key not in others] or self.keys[:1]

    @property
    def name_of_table(self) -> str:
        """The name of the table in messages."""
        return f"encoder ({self.encoder})" if self.table == "encoder" else self.table


def places() -> Iterator[Place]:
    for task, recipe in SCHEMAS.items():
        for table in TABLES:
            field = recipe.model_fields.get(table)
            if field is not None:
                assert isinstance(field.annotation, type)
                assert issubclass(field.annotation, BaseModel)
                yield Place(task, table, "lstm", keys_of(field.annotation))
        for encoder, schema in ENCODERS.items():
            yield Place(task, "encoder", encoder, keys_of(schema))


PLACES = list(places())
OF_ONE_TASK = [place for place in PLACES if place.table != "encoder" or place.task == "labeling"]
"""An encoder has the same keys in every task."""
EVERY_PLACE = pytest.mark.parametrize("place", some_slow(PLACES, *OF_ONE_TASK), ids=lambda place: " ".join(place[:3]))


def document(task: str, kind: str = "lstm", **tables: dict[str, Any]) -> dict[str, Any]:
    tables_of_recipe: dict[str, Any] = {"task": task, "encoder": {"kind": kind}, "train": {"steps": 1}}
    for table, keys in tables.items():
        tables_of_recipe[table] = tables_of_recipe.get(table, {}) | keys
    return tables_of_recipe


def mistake(recipe: dict[str, Any]) -> str:
    with pytest.raises(RecipeError) as caught:
        validate_recipe(recipe, where="mine")
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_every_task_and_table_is_tested() -> None:
    assert {(place.task, place.table) for place in PLACES} == {
        *((task, table) for task in SCHEMAS for table in ("data", "encoder", "train")),
        *((task, table) for task in ("labeling", "classification") for table in ("features", "directions", "head")),
        *(("language-modeling", table) for table in ("tokenizer", "tokens", "head")),
    }


@EVERY_PLACE
def test_a_key_with_a_typing_error_names_the_key_that_was_meant(place: Place) -> None:
    for key in place.tested_keys:
        wrong = f"{key}x"
        message = mistake(document(place.task, place.encoder, **{place.table: {wrong: 1}}))
        assert message == f'mine: unknown key "{place.table}.{wrong}" in {place.name_of_table}; did you mean "{key}"?'
    message = mistake(document(place.task, place.encoder, **{place.table: {"QQQ": 1}}))
    assert message == f'mine: unknown key "{place.table}.QQQ" in {place.name_of_table}'


@pytest.mark.parametrize("task", SCHEMAS)
def test_a_table_with_a_typing_error_names_the_table_that_was_meant(task: str) -> None:
    for table in SCHEMAS[task].model_fields:
        if table not in ("task", "encoder", "train"):
            message = mistake(document(task) | {f"{table}x": {}})
            assert message == f'mine: unknown key "{table}x" in the recipe; did you mean "{table}"?'


@pytest.mark.parametrize("task", SCHEMAS)
def test_keys_of_another_task_are_refused(task: str) -> None:
    mine = {(place.table, place.encoder): set(place.keys) for place in PLACES if place.task == task}
    refused = 0
    for place in PLACES:
        known = mine.get((place.table, place.encoder))
        if known is None:
            message = mistake(document(task) | {place.table: {}})
            assert message.startswith(f'mine: unknown key "{place.table}" in the recipe')
        for key in sorted(set(place.keys) - known)[::3] if known is not None else ():
            message = mistake(document(task, place.encoder, **{place.table: {key: 1}}))
            assert message.startswith(f'mine: unknown key "{place.table}.{key}" in {place.name_of_table}')
            refused += 1
    assert refused > 5


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        ("labelling", 'no task "labelling"; did you mean "labeling"?; known: language-modeling, labeling, classif'),
        ("tagging", 'no task "tagging"'), ("", 'no task ""'), (3, 'no task "3"'), (["labeling"], "no task "),
        ({"labeling": 1}, "no task "),
    ],
)  # fmt: skip
def test_an_unknown_task_is_refused(task: Any, sentence: str) -> None:
    assert mistake(document("labeling") | {"task": task}).startswith(f"mine: {sentence}")


@pytest.mark.parametrize("encoder", [3, ["lstm"], None, "", "LSTM", "transfomer"])
def test_an_unknown_encoder_is_refused(encoder: Any) -> None:
    message = mistake(document("labeling") | {"encoder": {"kind": encoder}})
    assert message.startswith(("mine: no encoder ", "mine: encoder.kind is missing"))
    if encoder == "transfomer":
        assert message.startswith('mine: no encoder "transfomer"; did you mean "transformer"?; known: ')


@pytest.mark.parametrize("task", ["labeling", "classification"])
@pytest.mark.parametrize("value", [3, "lstm", [], None])
def test_a_value_in_place_of_a_table_is_refused(task: str, value: Any) -> None:
    for table in ("data", "features", "encoder", "head", "train"):
        assert mistake(document(task) | {table: value}).startswith(f"mine: {table}")


def test_names_of_columns_may_be_numbers() -> None:
    """They need no quotes, in TOML and on the command line."""
    labeling = validate_recipe(
        document("labeling", data={"words": 1, "labels": 3}, features={"columns": [2, "upos", "4"]}), where="mine"
    )
    assert isinstance(labeling, LabelingRecipe)
    assert (labeling.data.words, labeling.data.labels) == ("1", "3")
    assert labeling.features.columns == ["2", "upos", "4"]
    classification = validate_recipe(document("classification", data={"texts": [1, "body"], "labels": 4}), where="mine")
    assert isinstance(classification, ClassificationRecipe)
    assert (classification.data.texts, classification.data.labels) == (["1", "body"], "4")
    changed = read_recipe(classification, ["data.texts=[2, 3]", "data.labels=1"])
    assert (changed.data.texts, changed.data.labels) == (["2", "3"], "1")  # type: ignore[attr-defined]
    assert read_recipe(labeling, ["data.labels=misc.NER"]).data.labels == "misc.NER"  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [True, 1.5, None, ["1"]])
def test_names_of_columns_of_other_types_are_refused(name: Any) -> None:
    labels = [name] if isinstance(name, list) else name
    assert mistake(document("labeling", data={"labels": labels})).startswith("mine: data.labels: ")
    assert mistake(document("labeling", features={"columns": [name]})).startswith("mine: features.columns.0: ")
    assert mistake(document("classification", data={"texts": [name]})).startswith("mine: data.texts.0: ")
    assert mistake(document("classification", data={"texts": "body"})).startswith("mine: data.texts: ")


@pytest.mark.parametrize(
    ("task", "table", "keys", "sentence"),
    [
        ("labeling", "data", {"format": "conll"}, "data.format: input should be 'auto', 'columns', 'conllu' or 'json'"),
        ("labeling", "data", {"valid_fraction": 1.0}, "data.valid_fraction: input should be less than 1, found 1.0"),
        ("labeling", "head", {"kind": "CRF"}, "head.kind: input should be 'softmax', 'viterbi' or 'crf', found 'CRF'"),
        ("labeling", "head", {"scheme": "bilou"}, "head.scheme: input should be 'iobes', 'bio' or 'file'"),
        ("labeling", "head", {"legal": 1}, "head.legal: input should be a valid boolean, found 1"),
        ("labeling", "head", {"bigram_weight": -0.1}, "head.bigram_weight: "),
        ("labeling", "features", {"characters": True}, "features.characters: input should be 'none', 'lstm' or 'cnn'"),
        ("classification", "data", {"keep": "middle"}, "data.keep: input should be 'start', 'end' or 'both'"),
        ("classification", "head", {"pooling": "mean"}, "head.pooling: input should be a valid list, found 'mean'"),
        ("classification", "head", {"pooling": ["mean", "best"]}, "head.pooling.1: input should be 'first', 'last'"),
        (
            "classification",
            "directions",
            {"merge": "max"},
            "directions.merge: input should be 'concatenate', 'sum', 'product'",
        ),
        (
            "labeling",
            "encoder",
            {"zoneout_cell": -0.1},
            "encoder.zoneout_cell: input should be greater than or equal to 0",
        ),
        ("labeling", "train", {"epochs": 2}, "train needs exactly one of steps, epochs, tokens, seconds; found steps"),
    ],
)
def test_invalid_values_are_refused(task: str, table: str, keys: dict[str, Any], sentence: str) -> None:
    assert mistake(document(task, **{table: keys})).startswith(f"mine: {sentence}")


@pytest.mark.parametrize("task", SCHEMAS)
@pytest.mark.parametrize(
    ("encoder", "keys", "sentence"),
    [
        ("clockwork", {"periods": []}, "encoder.periods: list should have at least 1 item"),
        ("clockwork", {"periods": [0, 1]}, "encoder.periods.0: input should be greater than or equal to 1, found 0"),
        ("clockwork", {"periods": 8}, "encoder.periods: input should be a valid list, found 8"),
        ("clockwork", {"d_model": 100}, "encoder has d_model 100, which is not divisible by the number of periods, 8"),
        (
            "clockwork",
            {"periods": [1, 2, 4]},
            "encoder has d_model 256, which is not divisible by the number of periods, 3",
        ),
        ("clockwork", {"periods": [1, 1]}, "encoder has periods that do not each divide the next: [1, 1]"),
        ("clockwork", {"periods": [4, 2]}, "encoder has periods that do not each divide the next: [4, 2]"),
        ("clockwork", {"periods": [2, 3]}, "encoder has periods that do not each divide the next: [2, 3]"),
        ("projected", {"d_cell": 0}, "encoder.d_cell: input should be greater than or equal to 1, found 0"),
        ("qrnn", {"size": 0}, "encoder.size: input should be greater than or equal to 1, found 0"),
    ],
)
def test_invalid_values_of_encoders_are_refused(task: str, encoder: str, keys: dict[str, Any], sentence: str) -> None:
    assert mistake(document(task, encoder, **{"encoder": keys})).startswith(f"mine: {sentence}")


REGULARIZED = {
    "dropout_recurrent": {
        "elman", "lstm", "peephole", "coupled", "layer-norm", "projected", "gru", "clockwork",
    },
    "zoneout_hidden": {"elman", "lstm", "peephole", "coupled", "layer-norm", "projected", "gru"},
    "zoneout_cell": {"lstm", "peephole", "coupled", "layer-norm", "projected"},
}  # fmt: skip
"""The encoders with recurrent weights for dropout, and with a hidden state or a cell for zoneout."""


@pytest.mark.parametrize("task", SCHEMAS)
@pytest.mark.parametrize("key", REGULARIZED)
def test_a_key_is_accepted_only_by_encoders_that_use_it(task: str, key: str) -> None:
    for encoder in ENCODERS:
        recipe = document(task, encoder, **{"encoder": {key: 0.25}})
        if encoder in REGULARIZED[key]:
            assert getattr(validate_recipe(recipe, where="mine").encoder, key) == 0.25
        else:
            assert mistake(recipe).startswith(f'mine: unknown key "encoder.{key}" in encoder ({encoder})')


@EVERY_PLACE
def test_defaults_are_written_out_and_read_back(place: Place, tmp_path: Path) -> None:
    """All keys of every table are written except None, which TOML lacks."""
    recipe = validate_recipe(document(place.task, place.encoder), where="mine")
    assert type(recipe) is SCHEMAS[place.task]
    written = tomllib.loads(recipe.to_toml())
    table = getattr(recipe, place.table)
    values = {key: value for key, value in table.model_dump().items() if key in place.keys}
    assert written[place.table] == {key: value for key, value in values.items() if value is not None}
    assert written["task"] == place.task
    (tmp_path / "r.toml").write_text(recipe.to_toml(), encoding="utf-8")
    again = read_recipe(tmp_path / "r.toml")
    assert again == recipe
    assert again.to_toml() == recipe.to_toml()


awkward = st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda text: "\r\n" not in text)
"""Texts without CR LF, which TOML reads as LF in multi-line strings."""


@given(about=awkward, columns=st.lists(awkward, max_size=3), labels=awkward, share=st.floats(0, 1, exclude_max=True))
def test_any_text_and_number_is_read_back(about: str, columns: list[str], labels: str, share: float) -> None:
    recipe_document = document(
        "labeling", data={"labels": labels, "train": about}, features={"columns": columns, "dropout_words": share}
    )
    recipe = validate_recipe(recipe_document | {"about": about, "measured": labels}, where="mine")
    assert validate_recipe(tomllib.loads(recipe.to_toml()), where="mine") == recipe


@pytest.mark.parametrize("task", SCHEMAS)
def test_paths_of_the_caller_replace_those_of_the_recipe(task: str) -> None:
    recipe = validate_recipe(document(task, data={"train": "a", "valid": "b"}), where="mine")
    changed = read_recipe(recipe, train="new", test="t")
    assert (changed.data.train, changed.data.valid, changed.data.test) == ("new", "b", "t")
    assert (recipe.data.train, recipe.data.valid, recipe.data.test) == ("a", "b", "")
    assert read_recipe(recipe) == recipe
    assert type(changed.data) is type(recipe.data)
    assert changed.model_copy(update={"data": recipe.data}) == recipe
    assert validate_recipe(tomllib.loads(changed.to_toml()), where="mine") == changed
