"""The run directory: all that a trained model is, on disk. It knows no task, and asks `tasks` what a run of one has."""
