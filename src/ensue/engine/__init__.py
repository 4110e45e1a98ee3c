"""The recurrence engine: it derives fast passes over whole sequences from the `step` of a layer.

- `trace.py` records `step` as a graph (`graph.py`), and detects changes of a layer; `aten.py` translates operations.
- `program.py` differentiates the graph, and builds three passes from it: forward, inference, backward.
- `schedule.py` orders a pass, `c_passes.py` generates its C code and calls it, and `c_library.py` compiles C.
- `runner.py` runs a pass, in C or in torch operations, with the products over all positions before and after it.
  `storage.py` packs rows of different lengths without their padding, and checks arrays before C reads them.
- `products.py` multiplies by packed matrices, and caches them for frozen models.
- `feedback.py` runs a computation that is not part of a step, such as attention, between two positions.
- `execution.py` chooses how a layer runs; `explain(layer)` returns the choice and its reason. `passes.c` has kernels
  outside of steps, such as dropout masks and rotary positions.

The `step` of a layer is plain torch code and uses none of these files.
"""

from ensue.engine.execution import Execution, c_functions, executing, explain, folds, may_compile, unroll, unroll_fed
from ensue.engine.feedback import Feedback
from ensue.engine.products import (
    CachedWeights,
    bf16_kernel,
    bf16_kernels,
    cached_for,
    caching,
    has_bfloat16,
    has_int8,
    int8_linear,
    use_bf16_kernel,
    weights_are_frozen,
)
from ensue.engine.storage import Packing
from ensue.engine.trace import ModuleCopy, has_hooks

__all__ = [
    "CachedWeights", "Execution", "Feedback", "ModuleCopy", "Packing", "bf16_kernel", "bf16_kernels", "c_functions",
    "cached_for", "caching", "executing", "explain", "folds", "has_bfloat16", "has_hooks", "has_int8", "int8_linear",
    "may_compile", "unroll", "unroll_fed", "use_bf16_kernel", "weights_are_frozen",
]  # fmt: skip
