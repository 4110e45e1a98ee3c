"""Runs of published models."""
