"""The run directory, which contains all files of a trained model. `TaskEntry.files` names the files of each task."""
