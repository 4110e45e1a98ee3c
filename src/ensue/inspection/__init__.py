"""Inspection of trained models: activations, attention, probabilities and attributions for a text, as a page.

Layers are not changed: taps record activations, and the effect of an input is measured by a second pass without it.
"""

from ensue.inspection.page import Inspection

__all__ = ["Inspection"]
