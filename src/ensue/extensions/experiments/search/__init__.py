"""Hyperparameter search with Optuna, an extra."""
