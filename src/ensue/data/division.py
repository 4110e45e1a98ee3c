"""Split of examples into training and validation sets that have no group in common."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

ExampleT = TypeVar("ExampleT")
Rows = NDArray[np.int64]
MAX_GROUPS_AT_ONCE = 1 << 16
"""The maximum number of groups that are processed at once, which bounds memory."""


class SelectableList(list[ExampleT]):
    """A list of examples."""

    def select(self, rows: Iterable[int]) -> Self:
        """Return the examples in these rows."""
        return type(self)(self[row] for row in rows)


class Division(NamedTuple):
    """The sorted rows of the training and the validation set, and the numbers of groups."""

    train: Rows
    valid: Rows
    num_groups: int
    num_valid_groups: int
    """The number of groups in the validation set."""
    is_exchanged: bool = False
    """Whether groups were exchanged because of their labels."""

    @property
    def has_repeats(self) -> bool:
        """Whether a group has several rows."""
        return self.num_groups < len(self.train) + len(self.valid)


def split_rows(
    groups: Sequence[Hashable] | Rows, num_train: int, *, is_random: bool, classes: Rows | None = None,
    labels: Rows | None = None,
) -> Division:  # fmt: skip
    """Split rows into about `num_train` training rows and validation rows.

    Groups are moved to the validation set until it is full. Groups that do not fit are skipped. If no group fits, the
    smallest group is moved, unless the data have only one group.

    Args:
        groups: The group of each row (N,), or the numbers of the groups by first appearance.
        num_train: The number of training rows.
        is_random: Whether validation groups are random (with a fixed seed) instead of the last groups of the data.
        classes: The frequency rank of the class of each row (N,). With classes, the split is stratified by class.
        labels: The distinct pairs of a row and one of its labels (2, P). With labels, groups are exchanged until each
            label is in the training set, and labels of several groups are in both sets, if possible.
    """
    group_of = _number_groups(groups)
    sizes = np.bincount(group_of)
    order = np.random.default_rng(0).permutation(len(sizes)) if is_random else np.arange(len(sizes))
    held_out = np.zeros(len(sizes), np.bool_)
    num_valid = len(group_of) - num_train
    if classes is not None:
        class_of = np.zeros(len(sizes), np.int64)
        np.maximum.at(class_of, group_of, classes)
        if 1 < len(np.unique(class_of)) <= len(sizes) // 2:
            held_out[_choose_by_class(order[::-1], sizes, class_of, num_valid)] = True
            num_valid = 0 if held_out.any() else num_valid
    held_out[_select_fitting(order[::-1], sizes, num_valid)] = True
    if num_valid and not held_out.any() and len(sizes) > 1:
        held_out[order[::-1][np.argmin(sizes[order[::-1]])]] = True
    exchanged = held_out if labels is None or not held_out.any() else _exchange(held_out, sizes, group_of, labels)
    is_valid = exchanged[group_of]
    rows = np.flatnonzero(~is_valid), np.flatnonzero(is_valid)
    return Division(*rows, len(sizes), int(exchanged.sum()), bool((exchanged != held_out).any()))


def assign_folds(groups: Sequence[Hashable] | Rows, num_folds: int, *, seed: int, classes: Rows | None = None) -> Rows:
    """Return the fold of each row (N,). Rows of a group are in one fold. Folds differ in size by at most one group.

    The groups are permuted by `seed`. With `classes` (N,), the groups of each class are divided among the folds.
    """
    group_of = _number_groups(groups)
    ranks = np.random.default_rng(seed).permutation(int(group_of.max()) + 1)
    if classes is not None:
        class_of = np.zeros(len(ranks), np.int64)
        np.maximum.at(class_of, group_of, classes)
        ranks = np.argsort(np.lexsort((ranks, class_of)))
    return (ranks % num_folds)[group_of]


def _number_groups(groups: Sequence[Hashable] | Rows) -> Rows:
    if isinstance(groups, np.ndarray):
        return groups
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in groups], np.int64)


def _select_fitting(order: Rows, sizes: Rows, room: float) -> list[int]:
    selected = []
    for block in np.array_split(order, -(-len(order) // MAX_GROUPS_AT_ONCE)):
        if room < 1:
            break
        for group, size in zip(block.tolist(), sizes[block].tolist(), strict=True):
            if size <= room:
                selected.append(group)
                room -= size
    return selected


def _exchange(held_out: NDArray[np.bool_], sizes: Rows, group_of: Rows, labels: Rows) -> NDArray[np.bool_]:
    """Return `held_out` (G,) with groups exchanged so that labels are in both sets. Frequent labels have priority.

    First a group of each label that training lacks is moved to the training set. Then the last groups of labels that
    validation lacks are moved to the validation set, until it has twice its rows. Finally, groups whose labels also
    occur in other validation groups are moved back, until the set has its previous size.
    """
    num_labels, original, held_out = int(labels[1].max()) + 1, held_out, held_out.copy()
    pairs = np.sort(group_of[labels[0]] * num_labels + labels[1])
    groups, ids = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], num_labels)
    total, num_held = (np.bincount(label_ids, minlength=num_labels) for label_ids in (ids, ids[held_out[groups]]))
    by_label = np.split(groups[np.argsort(ids, kind="stable")], np.cumsum(total)[:-1])
    starts = np.searchsorted(groups, np.arange(len(sizes) + 1))
    size = rows = int(sizes[held_out].sum())

    def move(candidates: Rows, sign: int, is_movable: Callable[[Rows], NDArray[np.bool_]]) -> None:
        """Move the first movable candidate to the validation set (`sign` 1) or to the training set (-1)."""
        nonlocal rows
        for group in candidates.tolist():
            group_labels = ids[starts[group] : starts[group + 1]]
            if is_movable(group_labels).all():
                held_out[group] = sign > 0
                num_held[group_labels] += sign
                rows += sign * int(sizes[group])
                return

    for label in np.flatnonzero((num_held == total) & (total > 0)):
        if num_held[label] == total[label]:
            move(by_label[label], -1, lambda group_labels: group_labels >= 0)
    for label in np.argsort(-total, kind="stable")[: np.count_nonzero(total > 1)]:
        if num_held[label] == 0 and rows < 2 * size:
            move(by_label[label][::-1], 1, lambda group_labels: num_held[group_labels] + 1 < total[group_labels])
    for group in np.flatnonzero(held_out):
        if rows > size:
            move(np.array([group]), -1, lambda group_labels: num_held[group_labels] > 1)
    return held_out if rows else original


def _choose_by_class(order: Rows, sizes: Rows, class_of: Rows, num_rows: int) -> list[int]:
    """Return groups with about `num_rows` rows in total, divided among classes in proportion to their rows.

    The first groups of each class are chosen. Of a class with several groups, at least one group is chosen and at least
    one is not. Frequent classes have priority if `num_rows` rows are too few for all classes.
    """
    grouped = order[np.argsort(class_of[order], kind="stable")]
    members = np.split(grouped, np.flatnonzero(np.diff(class_of[grouped])) + 1)
    members = [groups for groups in sorted(members, key=lambda groups: -sizes[groups].sum()) if len(groups) > 1]
    minimum = np.array([sizes[groups].min() for groups in members], np.float64)
    minimum[np.cumsum(minimum) > num_rows] = 0
    extra = np.maximum(0, [num_rows * sizes[groups].sum() / sizes.sum() for groups in members] - minimum)
    quotas = minimum + extra * min(1.0, (num_rows - minimum.sum()) / max(1e-9, extra.sum()))
    held_out, room = list[int](), 1e-6  # absorbs rounding errors of the quotas
    for groups, quota, is_wanted in reversed([*zip(members, quotas.tolist(), minimum > 0, strict=True)]):
        room += quota
        selected = _select_fitting(groups, sizes, room)[: len(groups) - 1]
        selected = selected or groups[np.argsort(sizes[groups], kind="stable")][: int(is_wanted)].tolist()
        room -= sizes[selected].sum()
        held_out += selected
    return held_out
