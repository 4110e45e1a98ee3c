"""Looking inside a trained model: what happens in it with a text, in numbers and as a page.

Everything is seen from outside, by watching taps and by computing again with a part left out.
"""

from ensue.inspection.page import Inspection

__all__ = ["Inspection"]
