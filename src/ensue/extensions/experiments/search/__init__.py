"""Search: many runs of one recipe, whose values are chosen by what the runs before have shown (Optuna, an extra)."""
