"""The speed of this machine relative to the reference machine, so that a bound of processor time holds on both."""

import copy
import json
import time
from collections.abc import Callable

# Mean processor time of `measure` on the reference machine (AMD EPYC of family 25, Zen 4) while the default tests ran
REFERENCE_SECONDS = 0.048
SOURCE = "\n".join(
    f"def f{n}(a, b=({n}, 'x'), *c):\n    return [a[k] + b[0] for k in range(len(c)) if k % 3] or {{'{n}': {n}.5}}"
    for n in range(400)
)


def measure() -> float:
    """Return the processor time in seconds of a fixed computation: compile, copy, read, write, sort."""
    start = time.process_time()
    compile(SOURCE, "source", "exec")
    rows = [{"id": n, "text": f"w{n * 7919 % 1000}", "values": [n / 3, n * 2]} for n in range(6_000)]
    copy.deepcopy(json.loads(json.dumps(rows))[:1_500]).sort(key=lambda row: (row["text"], -row["id"]))
    return time.process_time() - start


class MachineSpeed:
    """The mean of measurements that are taken while tests run, so that other processes slow both alike."""

    def __init__(self, measure: Callable[[], float] = measure, *, tests_between: int = 500) -> None:
        self.measure, self.tests_between, self.num_tests, self.seconds = measure, tests_between, 0, [measure()]

    def count_test(self) -> None:
        """Measure again after every `tests_between` tests."""
        self.num_tests += 1
        if self.num_tests % self.tests_between == 0:
            self.seconds.append(self.measure())

    def in_reference_seconds(self, seconds: float) -> float:
        """Return what `seconds` of processor time here would be on the reference machine."""
        return seconds * REFERENCE_SECONDS * len(self.seconds) / sum(self.seconds)
