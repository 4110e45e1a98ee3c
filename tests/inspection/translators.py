"""Tables of small translators for views."""

from typing import Any

SOURCE = "the big cat sees Ada"


LSTM = {"encoder": {"kind": "lstm", "d_model": 8}, "decoder": {"kind": "lstm", "d_model": 16}}


MODELS: dict[str, dict[str, Any]] = {
    "transformer": {},
    "dot": LSTM | {"attention": {"kind": "dot"}},
    "additive": LSTM | {"attention": {"kind": "additive"}},
    "heads": LSTM | {"attention": {"kind": "scaled-dot", "num_heads": 2}},
    "feeding": LSTM | {"attention": {"kind": "bilinear", "feeding": True}},
    "plain": LSTM | {"attention": {"kind": "none"}},
    "copying": LSTM | {"attention": {"kind": "bilinear"}, "head": {"copying": True, "coverage": 0.1}},
}
