"""Predictions to scores."""
