"""From predictions to scores."""
