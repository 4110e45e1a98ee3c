"""A recipe: everything that decides what a run computes, as one strict document.

Recipes are TOML. Every key has a type and a default, an unknown key is an error that names the nearest one, and a run
directory holds its recipe with every default written out. The tables that all tasks share are here; a task's own are in
its folder. This package needs no torch.
"""

from ensue.models.specification import Table
from ensue.recipe.tables import BUDGETS, DataRecipe, Recipe, TrainRecipe
from ensue.recipe.toml_files import as_trained, going_on, read_recipe, recipe_names, validate_recipe

__all__ = [
    "BUDGETS",
    "DataRecipe",
    "Recipe",
    "Table",
    "TrainRecipe",
    "as_trained",
    "going_on",
    "read_recipe",
    "recipe_names",
    "validate_recipe",
]
