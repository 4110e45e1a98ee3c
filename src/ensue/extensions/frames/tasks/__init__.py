"""The base of the tasks of frames: features, data and pipelines."""
