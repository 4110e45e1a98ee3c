"""The recurrence engine: any layer that writes `step` runs over whole sequences as fast as the hardware allows.

- `trace.py` records `step` as a graph of one step (`graph.py`, `operations.py`); `derivative.py` differentiates it.
- `snapshot.py` says whether a layer is still as it was when it was traced.
- `program.py` makes three passes of the graph: forward, inference, backward.
- `schedule.py` orders a pass, `c_source.py` prints it as C, `c_library.py` compiles that once for a machine and
  `c_passes.py` calls it.
- `plain_passes.py` runs the same passes in torch operations.
- `runner.py` does what lies outside of the loop over positions; `packing.py` leaves the padding of ragged rows out.
- `products.py` multiplies by packed matrices, and caches them for frozen models.
- `feedback.py` lets something that is no step, attention, say, stand between two positions.
- `execution.py` chooses which of these ways a layer runs. `explain(layer)` says which it is, and why. What is no step,
  masks of dropout and rotary positions, say, has passes of its own in `passes.c`.

A cell need not know of any of this.
"""

from ensue.engine.execution import Execution, executing, explain, folds, may_compile, passes, unroll, unroll_fed
from ensue.engine.feedback import Feedback
from ensue.engine.packing import Packing
from ensue.engine.products import (
    CachedWeights,
    are_cached,
    bf16_kernel,
    bf16_kernels,
    cached_for,
    caching,
    has_bfloat16,
    use_bf16_kernel,
)
from ensue.engine.snapshot import Copy, has_hooks

__all__ = [
    "CachedWeights",
    "Copy",
    "Execution",
    "Feedback",
    "Packing",
    "are_cached",
    "bf16_kernel",
    "bf16_kernels",
    "cached_for",
    "caching",
    "executing",
    "explain",
    "folds",
    "has_bfloat16",
    "has_hooks",
    "may_compile",
    "passes",
    "unroll",
    "unroll_fed",
    "use_bf16_kernel",
]
