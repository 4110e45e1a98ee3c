"""The bases of the tasks of frames: features, data and pipelines."""
