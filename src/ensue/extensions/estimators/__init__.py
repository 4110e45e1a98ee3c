"""Estimators of scikit-learn."""

from ensue.extension import Extension

EXTENSION = Extension(name="estimators", names={"sklearn": "ensue.extensions.estimators.sklearn"})
