"""Recipes: those of the package, the precedence of settings, and messages about mistakes."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ensue.errors import EnsueError, RecipeError
from ensue.models.build_text import build_language_model
from ensue.models.modules import count_parameters
from ensue.models.specification import Table
from ensue.notices import Notice
from ensue.recipe import BUDGETS, read_recipe, recipe_names, resumed_recipe, validate_recipe
from ensue.tasks.language_modeling.recipe import LanguageModelingRecipe
from forgetting import forget_notices

CELLS = [
    "peephole", "coupled", "layer-norm", "projected", "zoneout", "depth-gated", "grid", "clockwork", "mingru",
    "minlstm", "qrnn",
]  # fmt: skip
"""Cells whose recipe is char-lstm except for the cell."""

MINIMAL: dict[str, Any] = {"encoder": {"kind": "lstm"}, "train": {"steps": 5}}


@pytest.mark.parametrize("name", recipe_names())
def test_every_named_recipe_builds_and_reads_back_equal(name: str, tmp_path: Path) -> None:
    recipe = read_recipe(name)
    path = tmp_path / "resolved.toml"
    path.write_text(recipe.to_toml(), encoding="utf-8")
    assert read_recipe(path) == recipe
    assert recipe.about
    assert recipe.source
    assert sum(getattr(recipe.train, budget) is not None for budget in BUDGETS) == 1
    if not isinstance(recipe, LanguageModelingRecipe):
        return
    small = {"d_model": 12, "d_embedding": 12, "num_heads": 2}
    tokens, encoder = (
        table.model_copy(update={k: v for k, v in small.items() if hasattr(table, k)})
        for table in (recipe.tokens, recipe.encoder)
    )
    model = build_language_model(tokens, encoder, vocabulary_size=11)
    assert model.vocabulary_size == 11


OTHER_VALUES = {
    "accumulate": 2, "optimizer": "sgd", "weight_decay": 0.5, "beta1": 0.5, "beta2": 0.5, "average": 0.5, "clip": 0.5,
    "learning_rate": 0.5, "schedule": "constant", "warmup": 0.5,
}  # fmt: skip
SOLVED = [name for name in recipe_names() if read_recipe(name).unused_keys]


@pytest.mark.parametrize("name", SOLVED)
def test_keys_that_training_does_not_use_are_errors_except_in_a_run(name: str) -> None:
    """Runs of earlier versions have such keys."""
    recipe = read_recipe(name)
    changes = [("train", key, OTHER_VALUES[key]) for key in recipe.unused_keys] + [("tuning", "freeze", 1)]
    if "minirocket" in name:
        changes += [("features", "noise", 0.5)]
    for table, key, value in changes:
        changed = recipe.model_dump(exclude_unset=True, exclude_none=True)
        changed[table] = changed.get(table, {}) | {key: value}
        with pytest.raises(RecipeError, match=r"^mine: (has|needs)"):
            validate_recipe(changed, where="mine")
        assert getattr(getattr(validate_recipe(changed, where="mine", is_trained=True), table), key) == value


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [f"char-{cell}" for cell in CELLS])
def test_recipes_of_cells_differ_from_char_lstm_only_in_the_model(name: str) -> None:
    """Their results are comparable: the number of parameters and the training are the same."""
    recipe, lstm = read_recipe(name), read_recipe("char-lstm")
    assert isinstance(recipe, LanguageModelingRecipe)
    assert isinstance(lstm, LanguageModelingRecipe)
    assert (recipe.data, recipe.tokenizer, recipe.tokens.d_embedding) == (lstm.data, lstm.tokenizer, 64)
    sizes = [
        count_parameters(build_language_model(each.tokens, each.encoder, vocabulary_size=66)) for each in (recipe, lstm)
    ]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.03)
    differences = {"learning_rate", "beta1"}
    assert recipe.train.model_dump(exclude=differences) == lstm.train.model_dump(exclude=differences)


def test_settings_override_the_file(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('[encoder]\nkind = "gru"\nd_model = 16\n[train]\nsteps = 5\n')
    recipe = read_recipe(tmp_path / "r.toml", ["encoder.d_model=32", "train.seed = 2"])
    assert recipe.encoder.d_model == 32
    assert (recipe.train.seed, recipe.train.steps) == (2, 5)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("data.train=my text.txt", "my text.txt"), ('data.train="quoted"', "quoted"),
        ("data.train=~/a=b.txt", "~/a=b.txt"), ("data.train=", ""), ("data.train=é.txt", "é.txt"),
    ],
)  # fmt: skip
def test_a_setting_is_toml_or_a_bare_word(setting: str, value: str) -> None:
    assert read_recipe("char-lstm", [setting]).data.train == value


def test_settings_are_converted_to_the_types_of_their_keys() -> None:
    recipe = read_recipe("char-lstm", ["tokens.tied=true", "train.learning_rate=1", "train.clip=1e-3"])
    assert recipe.tokens.tied is True
    assert (recipe.train.learning_rate, recipe.train.clip) == (1.0, 1e-3)


def test_settings_may_be_a_mapping() -> None:
    assert read_recipe("char-lstm", {"train.steps": 7, "train.seed": 3}) == read_recipe(
        "char-lstm", ["train.steps=7", "train.seed=3"]
    )


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_budget_replaces_the_recipes_own(budget: str) -> None:
    train = read_recipe("char-lstm", [f"train.{budget}=9"]).train
    assert {name: getattr(train, name) for name in BUDGETS} == dict.fromkeys(BUDGETS) | {budget: 9}


def test_a_kind_drops_the_keys_of_the_recipe_that_it_does_not_have() -> None:
    forget_notices()
    with pytest.warns(Notice) as notices:
        recipe = read_recipe("classify-lstm", ["encoder.kind=transformer", "encoder.num_heads=2"])
    assert [str(notice.message) for notice in notices] == [
        "encoder.kind=transformer has no dropout_kind and dropout_input; these keys of the recipe are dropped"
    ]
    assert (recipe.encoder.kind, recipe.encoder.num_heads, recipe.encoder.d_model) == ("transformer", 2, 64)
    for setting in ("encoder.dropout_kind=plain", "encoder.nothing=1"):
        with pytest.raises(RecipeError, match=f'unknown key "{setting.partition("=")[0]}" in encoder'):
            read_recipe("classify-lstm", ["encoder.kind=transformer", setting])
    for name, kind in (("translate-transformer", "encoder.kind=lstm"), ("vectors-glove", "vectors.kind=cbow")):
        with pytest.warns(Notice, match=f"{kind} has no"):
            read_recipe(name, [kind])
    with pytest.raises(RecipeError, match=r"encoder.kind: input should be 'transformer', found {'a': 1}"):
        read_recipe("bert-mini", {"encoder.kind": {"a": 1}})
    document = {"encoder": {"kind": "transformer", "dropout_kind": "plain"}, "train": {"steps": 1}}
    with pytest.raises(RecipeError, match=r'unknown key "encoder.dropout_kind"'):
        validate_recipe(document, where="mine")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"train": {}}, "mine: train needs exactly one of steps, epochs, tokens, seconds; found none"),
        (
            {"train": {"steps": 1, "tokens": 2}},
            "mine: train needs exactly one of steps, epochs, tokens, seconds; found steps and tokens",
        ),
        ({"train": {"steps": True}}, "mine: train.steps: input should be a valid integer, found True"),
        ({"train": {"steps": "5"}}, "mine: train.steps: input should be a valid integer, found '5'"),
        ({"train": {"steps": 5, "reset_state": 1.0}}, "mine: train.reset_state: input should be less than 1, found"),
        ({"train": {"steps": 5, "epoch": 1}}, 'mine: unknown key "train.epoch" in train; did you mean "epochs"?'),
        ({"encoder": {}}, "mine: encoder.kind is missing"),
        (
            {"encoder": {"kind": "lstm", "num_heads": 3}},
            'mine: unknown key "encoder.num_heads" in encoder (lstm); did you mean "num_layers"?',
        ),
        (
            {"encoder": {"kind": "attention"}},
            'mine: no encoder "attention"; known: window, elman, lstm, peephole, coupled, layer-norm, projected, gru, '
            "clockwork, depth-gated, grid, mingru, minlstm, lru, mogrifier, lem, slstm, mlstm, hgrn2, "
            "gated-deltanet, rwkv7, qrnn, transformer",
        ),
        ({"encoder": {"kind": "min-gru"}}, 'mine: no encoder "min-gru"; did you mean "mingru"?; known: window, '),
        ({"tokenizer": {"kind": "letters"}}, "mine: tokenizer.kind: input should be"),
    ],
)  # fmt: skip
def test_every_mistake_is_an_error_of_one_line(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        validate_recipe(MINIMAL | change, where="mine")
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["char-lstn", "nothing.toml", ".", "", "a/b", "a/" * 3000])
def test_unknown_recipes_are_refused(name: str) -> None:
    with pytest.raises(EnsueError, match=r"no recipe named|no such recipe file") as raised:
        read_recipe(name)
    assert len(str(raised.value)) < 300


def test_a_recipe_is_comparable_and_immutable() -> None:
    recipe = validate_recipe(MINIMAL, where="test")
    assert recipe == LanguageModelingRecipe.model_validate(recipe.model_dump())
    with pytest.raises(ValueError, match="frozen"):
        recipe.train.seed = 3  # type: ignore[misc]


def test_all_integers_of_recipes_have_bounds() -> None:
    """All tables of the recipes of all tasks are tested."""
    keys = {
        (type(getattr(recipe, key.partition(".")[0])), key): name
        for name in recipe_names()
        for recipe in [read_recipe(name)]
        for key, value in recipe.values().items()
        if type(value) is int or key == "encoder.periods"
    }
    assert len(keys) > 200
    for (_, key), name in keys.items():
        for number in (10**20, -(10**400)):
            with pytest.raises(RecipeError, match=rf"^{name}: {re.escape(key)}.*(than|finite)") as caught:
                read_recipe(name, {key: [number] if key == "encoder.periods" else number})
            assert len(str(caught.value)) < 200


def test_tiny_numbers_have_bounds() -> None:
    for key in ("train.epochs", "train.seconds"):
        with pytest.raises(RecipeError, match="greater than"):
            read_recipe("char-lstm", {key: 1e-308})


def test_nested_or_long_documents_are_errors_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    for content in ("x = " + "[" * 400 + "]" * 400, "[train]\nsteps = " + "9" * 5000, ".".join("a" * 9999) + " = 1"):
        path.write_text(content)
        with pytest.raises(
            RecipeError, match=r"a.toml: (unsupported TOML: nested|not TOML that can be read: a number)"
        ) as caught:
            read_recipe(path)
        assert "\n" not in str(caught.value)


def test_every_table_is_written() -> None:
    """A resumed run would differ if a table, perhaps a new one, were missing."""

    class Extra(Table):
        size: int = 3

    class ExtendedRecipe(type(read_recipe("char-lstm"))):  # type: ignore[misc]
        extra: Extra = Extra()

    document = read_recipe("char-lstm").model_dump(exclude_none=True)
    recipe = ExtendedRecipe.model_validate(document | {"extra": {"size": 4}})
    again = tomllib.loads(recipe.to_toml())
    assert ExtendedRecipe.model_validate(again) == recipe


def test_a_path_that_is_not_utf8_is_an_error_of_one_line() -> None:
    with pytest.raises(RecipeError, match=r"data.train is a path that is not UTF-8, .*: 'a.udcff'$"):
        read_recipe("char-lstm", {"data.train": "a\udcff"})


def test_a_list_of_data_is_recorded_and_read_again() -> None:
    recipe = read_recipe("char-lstm", ['data.valid=["v", "w"]'], train=["a b.txt", Path("c")], test=["t"])
    assert recipe.values()["data.train"] == ["a b.txt", "c"]
    assert (recipe.values()["data.valid"], recipe.data.test) == (["v", "w"], "t")
    assert validate_recipe(tomllib.loads(recipe.to_toml()), where="it") == recipe
    assert read_recipe(recipe, train=recipe.data.train) == recipe


def test_a_resumed_run_keeps_former_defaults() -> None:
    fresh = read_recipe("classify-lstm")
    for former, expected in (("rows", "rows"), ("sources", "sources"), ("classes", "classes")):
        stored = read_recipe("classify-lstm", {"data.division": former})
        assert resumed_recipe(fresh, stored).values()["data.division"] == expected
    fresh_tagger = read_recipe("tag-lstm")
    for former in ("rows", "sources", "classes", "labels"):
        stored = read_recipe("tag-lstm", {"data.division": former})
        assert resumed_recipe(fresh_tagger, stored).values()["data.division"] == former
    changed = read_recipe("classify-lstm", {"data.division": "sources"})
    assert resumed_recipe(changed, fresh) == changed
