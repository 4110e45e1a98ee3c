"""Prediction of frames: the density of the next frame of a series."""
