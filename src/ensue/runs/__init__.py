"""The run directory, which holds a trained model completely. It knows no task; `tasks` tells what a run of one has."""
