"""Which mutants: Cosmic Ray's operators on the files of a group, a fixed sample by seed, found again after a move."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.ast.ast_query import ASTQuery
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

FAMILIES = {
    "comparison": [
        f"ReplaceComparisonOperator_{change}"
        for change in ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Is_IsNot", "IsNot_Is")
    ],
    "arithmetic": [
        f"ReplaceBinaryOperator_{change}"
        for change in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_FloorDiv", "Pow_Mul")
    ],
    "condition": ["AddNot", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceUnaryOperator_Delete_Not"],
    "constant": ["NumberReplacer"],
    "flag": ["ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceUnaryOperator_Delete_USub"],
    "loop": ["ZeroIterationForLoop", "ReplaceBreakWithContinue", "ReplaceContinueWithBreak"],
}


@dataclass(frozen=True)
class Mutant:
    """One change. What it is (`change`) and the name of its file are how it is found again after a move."""

    operator: str
    definition: str
    text: str
    """The line's."""
    number: int
    """Which of those that have all this in common, in the order of the file."""
    path: str
    occurrence: int
    line: int

    @property
    def change(self) -> tuple[str, str, str, int]:
        return self.operator, self.definition, self.text, self.number

    @property
    def name(self) -> str:
        return hashlib.sha256(f"{Path(self.path).stem} {self.change}".encode()).hexdigest()[:8]

    def mutated(self, source: str) -> str:
        found = mutate_code(source, get_operator(f"core/{self.operator}")(), self.occurrence)
        assert found is not None
        return str(found)

    def is_code(self, root: Path) -> bool:
        """Whether it is Python still: a star before keywords is not a product."""
        try:
            compile(self.mutated((root / self.path).read_text(encoding="utf-8")), self.path, "exec")
        except SyntaxError:
            return False
        return True


def sample(root: Path, groups: dict[str, list[str]], count: int, seed: int) -> list[tuple[str, Mutant]]:
    """`count` mutants of each group of folders, all families in turn, in the order of a hash of seed and name."""

    def rank(mutant: Mutant) -> str:
        return hashlib.sha256(f"{seed} {mutant.name}".encode()).hexdigest()

    chosen: list[tuple[str, Mutant]] = []
    for group, all_of_it in grouped(root, groups).items():
        families = defaultdict(list)
        for mutant in all_of_it:
            families[_family(mutant)].append(mutant)
        turns = zip_longest(*(sorted(families[name], key=rank) for name in sorted(families)))
        in_turn = (mutant for turn in turns for mutant in turn if mutant is not None and mutant.is_code(root))
        chosen += [(group, mutant) for mutant in islice(in_turn, count)]
    return chosen


def found_again(root: Path, groups: dict[str, list[str]], wanted: list[tuple[str, Mutant]]) -> list[tuple[str, Mutant]]:
    """The same changes where their lines stand now, in a file of the same name if there are several; some are gone."""
    places = defaultdict(list)
    for group, all_of_it in grouped(root, groups).items():
        for mutant in all_of_it:
            places[mutant.change].append((group, mutant))
    found = []
    for _, mutant in wanted:
        same = places[mutant.change]
        same.sort(key=lambda place: Path(place[1].path).stem != Path(mutant.path).stem)
        found += same[:1]
    return found


def grouped(root: Path, groups: dict[str, list[str]]) -> dict[str, list[Mutant]]:
    """All mutants, by group."""
    seen: set[str] = set()
    found: dict[str, list[Mutant]] = {}
    for group, folders in groups.items():
        paths = {path: None for folder in folders for path in sorted((root / folder).rglob("*.py"))}
        names = [str(path.relative_to(root)) for path in paths]
        found[group] = [
            m for name in names if name not in seen for m in _of_file((root / name).read_text("utf-8"), name)
        ]
        seen.update(names)
    return found


def _family(mutant: Mutant) -> str:
    return next(name for name, operators in FAMILIES.items() if mutant.operator in operators)


def _of_file(source: str, path: str) -> Iterator[Mutant]:
    lines, tree = source.splitlines(), get_ast(source)
    nodes = list(ast_nodes(tree))
    for name in chain.from_iterable(FAMILIES.values()):
        operator, same = get_operator(f"core/{name}")(), Counter[tuple[str, str]]()
        positions = ((node, start) for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, (node, (line, _)) in enumerate(positions):
            about = ASTQuery(node).get_definition_name() or "", lines[line - 1].strip()
            if "TYPE_CHECKING" not in about[1] and node.parent.type != "parameters":  # a star there is no product
                yield Mutant(name, *about, same[about], path, occurrence, line)
            same[about] += 1
