"""Inspection: views of models, and their pages."""
