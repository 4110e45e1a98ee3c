"""`PYTHONPATH=tests python -m fuzz`: train small models, run the cases, and report findings, with status 1 if any."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", MPLBACKEND="agg")

from fuzz.cases import cases, numbered
from fuzz.material import make_cache, trained
from fuzz.process import NOBODY, NOBODY_SUFFIX
from fuzz.run_directories import answers
from fuzz.supervisor import outcomes
from fuzz.verdict import Finding, judge


def main() -> int:
    options = _options()
    root = Path(tempfile.mkdtemp(prefix="fuzz-"))
    root.chmod(0o755)  # for cases of another user
    _make_caches(root)
    try:
        return _fuzz(options, root)
    finally:
        if options.keep:
            print(f"kept in {root}", file=sys.stderr)
        else:
            shutil.rmtree(root, ignore_errors=True)


def _make_caches(root: Path) -> None:
    """Create caches and compiled cells for the cases, separately for those of root."""
    os.environ |= {"ENSUE_CACHE": str(make_cache(root / "cache")), "ENSUE_CELLS": str(root / "cells")}
    if os.getuid() == 0:
        cache = make_cache(root / f"cache{NOBODY_SUFFIX}")
        (root / f"cells{NOBODY_SUFFIX}").mkdir(mode=0o700)
        for path in (cache, *cache.rglob("*"), root / f"cells{NOBODY_SUFFIX}"):
            os.chown(path, NOBODY, NOBODY)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="how many; default: 2000")
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other cases; default: 0")
    parser.add_argument("--case", action="append", metavar="KIND:NUMBER", help="only this one; may be repeated")
    parser.add_argument("--kind", help="only the cases of this kind")
    parser.add_argument("--processes", type=int, default=1, help="how many cases at a time; default: 1")
    parser.add_argument("--keep", action="store_true", help="keep the folders, with stdout and stderr beside them")
    parser.add_argument("--each", action="store_true", help="print each finding when it comes up")
    return parser.parse_args()


def _fuzz(options: argparse.Namespace, root: Path) -> int:
    (root / "material").mkdir()
    began = time.monotonic()
    material = trained(root / "material")
    material.answers = answers(material, root / "answers")
    print(f"material: {time.monotonic() - began:.0f} s", file=sys.stderr)
    names = options.case or [
        name for name in numbered(options.cases) if not options.kind or name.startswith(options.kind)
    ]
    (root / "cases").mkdir()
    began, findings, kinds, statuses = time.monotonic(), [], Counter(), Counter()
    for outcome in outcomes(
        cases(names, options.seed, material, root / "cases"), processes=options.processes, keep=options.keep
    ):
        kinds[outcome.case.name.partition(":")[0]] += 1
        statuses[outcome.status] += 1
        if options.case:
            print(f"{outcome.case.name}: status {outcome.status}, {outcome.seconds:.2f} s, {outcome.peak_mib} MiB")
            print(f"{outcome.case.arguments}\n{outcome.err[-3000:]}")
        if finding := judge(outcome):
            findings.append(finding)
            if options.each:
                print(finding, flush=True)
    print(f"{_counted(kinds)}; status {_counted(statuses)}; {time.monotonic() - began:.0f} s; seed {options.seed}")
    _report(findings)
    return int(bool(findings))


def _counted(counts: Counter[object]) -> str:
    return f"{sum(counts.values()):,} cases: " + ", ".join(f"{key} {count:,}" for key, count in counts.most_common())


def _report(findings: Sequence[Finding]) -> None:
    groups: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.fault, finding.location].append(finding)
    print(f"{len(findings)} findings in {len(groups)} groups")
    for (what, where), group in sorted(groups.items(), key=lambda item: -len(item[1])):
        first = group[0]
        print(f"{len(group):5} {what} in {where}: {first.detail}\n      {first.name} {first.command}")


if __name__ == "__main__":
    sys.exit(main())
