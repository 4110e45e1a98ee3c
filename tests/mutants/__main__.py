"""Try mutants of a fixed sample with the tests near them: PYTHONPATH=tests python -m mutants --help"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from mutants.near import GROUPS, near
from mutants.sample import Mutant, relocated, sample
from mutants.trial import copied, keep_cells, try_tests

LIMIT = 2.0
"""A trial may compute this multiple of the time of the tests without a mutant, and `MORE` seconds."""
MORE = 10.0
AT_MOST = 600.0


def main() -> int:
    options = _options()
    package = options.checkout / "src" / "ensue"
    if options.again:
        records = [json.loads(line) for line in options.again.read_text().splitlines()]
        expected = [(record["group"], Mutant(**record["mutant"])) for record in records]
        chosen = relocated(package, GROUPS, expected)
    else:
        chosen = sample(package, GROUPS, options.count, options.seed)
    finished = (
        {json.loads(line)["name"] for line in options.out.read_text().splitlines()} if options.out.exists() else set()
    )
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = copied(options.checkout, Path(folder))
        for group in GROUPS:
            mutants = [mutant for other_group, mutant in chosen if other_group == group and mutant.name not in finished]
            tests = {mutant: near(root / "tests", mutant.path, group) for mutant in mutants}
            limit = _limit(root, tests) if mutants else 0.0
            for mutant in mutants:
                record = _tried(root, group, mutant, tests[mutant], limit)
                with options.out.open("a") as out:
                    out.write(json.dumps(record) + "\n")
                print(_shown(record), flush=True)
    _report([json.loads(line) for line in options.out.read_text().splitlines()])
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--checkout", type=Path, default=Path(), help="what is mutated, in a copy")
    parser.add_argument("--count", type=int, default=16, help="mutants of each group of folders")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument(
        "--out", type=Path, required=True, help="a line for each mutant; those in it are not tried again"
    )
    parser.add_argument(
        "--again", type=Path, help="the mutants of this file in place of a sample, wherever they are now"
    )
    options = parser.parse_args()
    options.checkout = options.checkout.resolve()
    return options


def _limit(root: Path, tests: dict[Mutant, list[str]]) -> float:
    """Return the seconds for a mutant of a group, from a run of its tests without a mutant, which must pass."""
    trial = try_tests(root, sorted({test for some in tests.values() for test in some}), AT_MOST)
    if trial.outcome != "survived":
        sys.exit(f"without a mutant: {trial}")
    keep_cells(root)
    return LIMIT * trial.seconds + MORE


def _tried(root: Path, group: str, mutant: Mutant, tests: list[str], limit: float) -> dict[str, object]:
    path = root / "src" / "ensue" / mutant.path
    source = path.read_text(encoding="utf-8")
    try:
        path.write_text(mutant.mutated(source), encoding="utf-8")
        trial = try_tests(root, tests, limit)
    finally:
        path.write_text(source, encoding="utf-8")
    return {"name": mutant.name, "group": group, "mutant": asdict(mutant), **trial._asdict()}


def _shown(record: dict[str, object]) -> str:
    mutant = Mutant(**record["mutant"])  # type: ignore[arg-type]
    return f"{record['outcome']:11} {mutant.path}:{mutant.line} {mutant.operator} | {mutant.text} | {record['by']}"


def _report(records: list[dict[str, object]]) -> None:
    groups = [*GROUPS, "all"]
    total, killed = Counter[str](), Counter[str]()
    for record in records:
        for group in (str(record["group"]), "all"):
            total[group] += 1
            killed[group] += record["outcome"] != "survived"
    print("\nsurvived:", *(_shown(r) for r in records if r["outcome"] == "survived"), sep="\n")
    for group in groups:
        if total[group]:
            print(f"{group:8} {killed[group]:3} of {total[group]:3} killed, {killed[group] / total[group]:.0%}")


if __name__ == "__main__":
    sys.exit(main())
