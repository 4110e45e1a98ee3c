"""The recurrence engine: any layer that writes `step` runs over whole sequences as fast as the hardware allows.

`step` is traced (`trace.py`) into a graph of one step (`graph.py`, `operations.py`), the graph is differentiated
(`derivative.py`) and made ready as three passes (`program.py`). A pass is printed as C (`schedule.py`, `c_source.py`),
compiled once for a machine (`c_library.py`) and called (`compiled.py`), or runs in torch's own operations (`plain.py`).
On a GPU it is printed in Triton (`triton_source.py`) and launched position by position (`triton_pass.py`).
`execution.py` does what lies outside of the loop over positions. Ragged rows are packed without padding (`rows.py`).

A cell need not know of it. `explain(layer)` says how a layer will run, and why.
"""

from ensue.engine.products import bf16_kernel, bf16_kernels, use_bf16_kernel
from ensue.engine.running import Execution, executing, explain, may_compile, runs_compiled, unroll

__all__ = [
    "Execution",
    "bf16_kernel",
    "bf16_kernels",
    "executing",
    "explain",
    "may_compile",
    "runs_compiled",
    "unroll",
    "use_bf16_kernel",
]
