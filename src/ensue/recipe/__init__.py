"""A recipe: everything that decides what a run computes, as one strict document.

Recipes are TOML. Every key has a type and a default, an unknown key is an error that names the nearest one, and a run
directory holds its recipe with every default written out. This package needs no torch.
"""

from ensue.recipe.classification import ClassificationData, ClassificationRecipe
from ensue.recipe.labeling import LabelingData, LabelingRecipe
from ensue.recipe.language_modeling import (
    LanguageModelingData,
    LanguageModelingRecipe,
    LanguageModelingTrain,
    TokenizerRecipe,
)
from ensue.recipe.reading import read_recipe, recipe_names, validate_recipe, with_paths
from ensue.recipe.tables import BUDGETS, DataRecipe, Recipe, TrainRecipe
from ensue.recipe.texts import TextsTrain

__all__ = [
    "BUDGETS",
    "ClassificationData",
    "ClassificationRecipe",
    "DataRecipe",
    "LabelingData",
    "LabelingRecipe",
    "LanguageModelingData",
    "LanguageModelingRecipe",
    "LanguageModelingTrain",
    "Recipe",
    "TextsTrain",
    "TokenizerRecipe",
    "TrainRecipe",
    "read_recipe",
    "recipe_names",
    "validate_recipe",
    "with_paths",
]
