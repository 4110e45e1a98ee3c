"""A trained model looked into: what it makes of one text, in numbers and as a page.

Everything is seen from outside, by watching taps and by computing again with a part left out.
"""

from ensue.inspection.inspection import Inspection

__all__ = ["Inspection"]
