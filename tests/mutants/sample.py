"""A fixed sample of Cosmic Ray's mutants in the files of a group, by seed, which can be relocated after a move."""

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
    """A mutant. After a move, it is identified by its `change` and the name of its file."""

    operator: str
    definition: str
    text: str
    """The text of the line."""
    number: int
    """The number among equal changes, in the order of the file."""
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
        mutated_source = mutate_code(source, get_operator(f"core/{self.operator}")(), self.occurrence)
        assert mutated_source is not None
        return str(mutated_source)

    def is_code(self, root: Path) -> bool:
        """Return whether the mutant is valid Python: a star before keywords is not a product."""
        try:
            compile(self.mutated((root / self.path).read_text(encoding="utf-8")), self.path, "exec")
        except SyntaxError:
            return False
        return True


def sample(root: Path, groups: dict[str, list[str]], count: int, seed: int) -> list[tuple[str, Mutant]]:
    """Return `count` mutants of each group, the families in turn, in the order of a hash of seed and name."""

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


def relocated(root: Path, groups: dict[str, list[str]], sample: list[tuple[str, Mutant]]) -> list[tuple[str, Mutant]]:
    """Return the same changes at their current lines, preferably in a file of the same name. Some may be missing."""
    mutants_by_change = defaultdict(list)
    for group, all_of_it in grouped(root, groups).items():
        for mutant in all_of_it:
            mutants_by_change[mutant.change].append((group, mutant))
    mutants = []
    for _, mutant in sample:
        candidates = mutants_by_change[mutant.change]
        candidates.sort(key=lambda item: Path(item[1].path).stem != Path(mutant.path).stem)
        mutants += candidates[:1]
    return mutants


def grouped(root: Path, groups: dict[str, list[str]]) -> dict[str, list[Mutant]]:
    """Return all mutants by group."""
    seen: set[str] = set()
    mutants: dict[str, list[Mutant]] = {}
    for group, folders in groups.items():
        paths = {path: None for folder in folders for path in sorted((root / folder).rglob("*.py"))}
        names = [str(path.relative_to(root)) for path in paths]
        mutants[group] = [
            m for name in names if name not in seen for m in _of_file((root / name).read_text("utf-8"), name)
        ]
        seen.update(names)
    return mutants


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
            if "TYPE_CHECKING" not in about[1] and node.parent.type != "parameters":  # whose star does not multiply
                yield Mutant(name, *about, same[about], path, occurrence, line)
            same[about] += 1
