"""The weights of a linear tagger are the minimum of the regularized loss, computed by enumeration of all paths."""

from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ensue.models.build_text import build_lexicon, build_tagger
from ensue.models.specification import Directions, NoEncoder
from ensue.models.tagger import Tagger, WindowSum
from ensue.models.word_features import REACH, EncodedForms, WindowScores, Words
from ensue.models.word_specification import SentenceFeatureSpecification, TagHeadSpecification
from ensue.recipe import read_recipe
from ensue.tasks.labeling.job import LabelingJob
from ensue.tasks.labeling.task import Labeling, LinearObjective, TaggedBatch, label_pairs, tally_of
from ensue.text.labels import Labels

SENTENCES = [["Ann", "saw", "Bo"], ["Bo", "ran"], ["the", "dog", "saw", "Ann"], ["ran"]]
TAGS = [[0, 1, 0], [0, 1], [2, 2, 1, 0], [1]]
STRENGTH, ROWS = 2.0, ([0, 1, 2], [3])
SHORT = {"<unk>": "<unk>", "xxx": "x", "Xx": "Xx", "Xxx": "Xx"}
OWN_VARIANCES, SHORT_VARIANCES = (0, 0.5, 2, 0.5, 0), (0.5, 1, 4, 1, 0.5)
"""The prior variances, by position, of a shape's own scores, and of those that shapes with one short shape share."""


def test_shapes_of_another_size_have_scores_in_three_blocks() -> None:
    for size, blocks in ((1, 3), (REACH, 2 * REACH + 1), (20, 3)):
        features = SentenceFeatureSpecification(d_shape=size, min_count=1)
        scores = WindowScores(features, build_lexicon(features, {"Ann": 1}), num_tags=7)
        assert scores.shapes is not None
        assert scores.shapes.d_out == 7 * blocks


def trained_weights(model: Tagger) -> list[Tensor]:
    return [weight for weight in model.parameters() if weight.requires_grad]


def built(kind: Any) -> tuple[Tagger, list[TaggedBatch]]:
    """Return a tagger with random weights, and the sentences in two batches, one of them padded."""
    words = [word for sentence in SENTENCES for word in sentence]
    columns = {"shape": ["up", "down"]}
    features = SentenceFeatureSpecification(
        affixes=2, min_affix_count=1, d_shape=2, min_count=1, dropout_words=0.0, columns=["shape"]
    )
    lexicon = build_lexicon(features, {word: words.count(word) for word in words}, columns=columns)
    assert lexicon.shapes is not None
    assert lexicon.shapes.symbols == tuple(SHORT)
    head = TagHeadSpecification(kind=kind, solver="lbfgs")
    labels = Labels(["a", "b", "c"], scheme=None, tag_scheme=None)
    encoder, directions = NoEncoder(kind="none"), Directions()
    model = build_tagger(features, encoder, head, directions=directions, lexicon=lexicon, labels=labels)
    for weight in trained_weights(model):
        torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(0))
    batches = []
    for rows in ROWS:
        width = max(len(SENTENCES[row]) for row in rows)
        padded = [SENTENCES[row] + ["dog"] * (width - len(SENTENCES[row])) for row in rows]
        forms = sorted({word for row in padded for word in row})
        values = [[0 if word == "dog" else 1 + word.islower() for word in row] for row in padded]
        mask = torch.tensor([[t < len(SENTENCES[row]) for t in range(width)] for row in rows])
        read = Words(
            EncodedForms.of(lexicon.encode(forms), torch.device("cpu")),
            torch.tensor([[forms.index(word) for word in row] for row in padded]), torch.tensor(values).unsqueeze(2),
            mask,
        )  # fmt: skip
        tags = torch.tensor([TAGS[row] + [-1] * (width - len(TAGS[row])) for row in rows])
        batches.append(TaggedBatch(read, None, tags))
    return model, batches


def shape_covariances() -> Any:
    """Return the prior covariances of shapes in each block; scores are sums of own and shared ones."""
    shared = np.array([[SHORT[a] == SHORT[b] for b in SHORT] for a in SHORT])
    return np.stack(
        [variance * np.eye(4) + short * shared for variance, short in zip(OWN_VARIANCES, SHORT_VARIANCES, strict=True)]
    )


def objective(model: Tagger, batches: list[TaggedBatch]) -> float:
    """Return Σ loss + ½ wᵀ V⁻¹ w / C, with losses over all paths."""
    tables = {name: table.detach().double().numpy() for name, table in model.named_parameters()}
    places, total = 2 * REACH + 1, 0.0
    wide = {name: tables[f"features.{name}.weight"] for name in ("words", "shapes", "affixes", "columns.0")}
    wide = {name: table.reshape(len(table), -1, 3) for name, table in wide.items()}
    assert [table.shape[1] for table in wide.values()] == [places, places, 1, places]
    ends = [tables.get(f"head.crf.{name}", np.zeros(3)) for name in ("start", "end")]
    pairs = tables.get("head.crf.transitions", np.zeros((3, 3)))
    for batch, numbers in zip(batches, ROWS, strict=True):
        words: Any = batch.words
        for row, number in enumerate(numbers):
            length, scores = len(SENTENCES[number]), tables["head.projection.bias"] + np.zeros((len(TAGS[number]), 3))
            for t, s in product(range(length), repeat=2):
                form, reach = words.numbers[row, s], t - s
                if abs(reach) <= REACH:
                    scores[t] += wide["words"][words.forms.words[form], REACH + reach]
                    scores[t] += wide["columns.0"][words.columns[row, s, 0], REACH + reach]
                    scores[t] += wide["shapes"][words.forms.shapes[form], REACH + reach]
                if reach == 0:
                    affixes = sorted({*words.forms.affixes[form].tolist()} - {0})
                    scores[t] += wide["affixes"][affixes, 0].sum(0)

            def score(path: Any, scores: Any = scores) -> float:
                between = sum(pairs[a, b] for a, b in pairwise(path))
                return float(scores[range(len(path)), path].sum() + ends[0][path[0]] + ends[1][path[-1]] + between)

            paths = list(map(list, product(range(3), repeat=length)))
            total += float(np.logaddexp.reduce(list(map(score, paths)))) - score(TAGS[number])
    rows, variances = model.features.variances, []
    for table in model.features.parameters():  # the variance of each block, for all words
        blocks, rows = rows[: table.numel() // 3].view(len(table), -1), rows[table.numel() // 3 :]
        variances.append(blocks.repeat_interleave(3, 1))
    weights = trained_weights(model)
    for weight, v in zip(weights, [*variances, *[torch.ones(())] * len(weights)], strict=False):
        if weight is not model.features.shapes.weight:
            total += float((weight.detach().double().square() / v).sum()) / 2 / STRENGTH
    inverses = np.linalg.pinv(shape_covariances(), hermitian=True)
    total += np.einsum("ipk,pij,jpk->", wide["shapes"], inverses, wide["shapes"]) / 2 / STRENGTH
    return total


@pytest.mark.parametrize("kind", ["crf", "softmax"])
def test_the_solution_is_the_minimum(kind: str) -> None:
    model, batches = built(kind)

    def slopes() -> list[float]:
        """Return the slopes in four random directions."""
        slope_values, generator, weights = [], torch.Generator().manual_seed(1), trained_weights(model)
        for _ in range(4):
            direction = [torch.randn(weight.shape, generator=generator) for weight in weights]
            shapes = next(i for i, weight in enumerate(weights) if weight is model.features.shapes.weight)
            possible = np.einsum("pij,jpk->ipk", shape_covariances() / 5, direction[shapes].view(4, 5, 3))
            direction[shapes], values = torch.from_numpy(possible).float().reshape(4, 15), []
            for step in (1e-2, -1e-2, 0):
                saved = [weight.detach().clone() for weight in weights]
                for weight, along in zip(weights, direction, strict=True):
                    weight.data += step * along
                values.append(objective(model, batches))
                for weight, before in zip(weights, saved, strict=True):
                    weight.data.copy_(before)
            slope_values.append((values[0] - values[1]) / 2e-2)
            assert values[0] + values[1] > 2 * values[2]
        return slope_values

    before = slopes()
    nats = LinearObjective(model, batches).solve(model, STRENGTH, tolerance=1e-9)
    np.testing.assert_allclose(slopes(), np.zeros(4), atol=5e-3)
    assert np.abs(before).max() > 1
    assert nats == pytest.approx(objective(model, batches), rel=1e-5)


def test_padding_is_not_added_to_a_window() -> None:
    layer, x = WindowSum(3), torch.randn(2, 4, 15, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    x[1, 2:] = torch.nan
    torch.testing.assert_close(layer(x, mask=mask)[0][1, :2], layer(x[1:, :2])[0][0])
    expected = sum(x[0, s].view(5, 3)[1 - s + REACH] for s in range(4))
    torch.testing.assert_close(layer(x[:1])[0][0, 1], expected)


@pytest.mark.parametrize(("names", "size"), [(["O", "B-X", "I-X"], 1), (["a", "b", "c"], 4)])
def test_expected_score_and_standard_error_equal_the_jackknife(names: list[str], size: int) -> None:
    """The jackknife leaves out groups of sentences; five folds add a factor."""
    scheme: Any = "bio" if "O" in names else None
    labels, choose = Labels(names, scheme=scheme, tag_scheme=scheme), np.random.default_rng(0)
    gold = [choose.integers(0, 3, choose.integers(1, 15)) for _ in range(200 * size)]
    noise = np.repeat(choose.random(200) / 2, size)
    paths = [
        np.where(choose.random(len(tags)) < share, choose.integers(0, 3, len(tags)), tags)
        for tags, share in zip(gold, noise, strict=True)
    ]
    texts = [labels.decode(tags.tolist()) for tags in gold]
    data = SimpleNamespace(labels=texts, words=texts, misaligned=())
    groups = 7 * np.repeat(choose.permutation(200), size)
    task: Any = SimpleNamespace(labels=labels, train=data, judged_by="f1" if scheme else "accuracy", groups=groups)
    scores = Labeling._score_folds(task, paths, 5)
    counts = np.array([tally_of(labels).add(*pair) for pair in label_pairs(paths, data, labels)])
    sums = counts.sum(0) - counts.reshape(200, size, -1).sum(1)
    left_out = 2 * sums[:, 2] / (sums[:, 3] + sums[:, 4]) if scheme else sums[:, 0] / sums[:, 1]
    error = np.sqrt(199 / 200 * np.square(left_out - left_out.mean()).sum()) * 0.8 ** (1 / 3) * np.sqrt(2.25)
    assert scores.standard_error == pytest.approx(error, rel=0.1)
    assert scores.expected == pytest.approx(1 - 0.8 ** (1 / 3) * (1 - (scores.f1 if scheme else scores.accuracy)))
    name = "F1" if scheme else "accuracy"
    expected = f"{name} {100 * scores.expected:.1f} ± {100 * scores.standard_error:.1f}"
    assert scores.summary().endswith(f"; expected of the model of all sentences: {expected}")
    assert {"expected", "standard_error"} <= scores.as_json().keys()
    assert "expected" not in tally_of(labels).scores_of(label_pairs(paths, data, labels)).as_json()


@pytest.mark.parametrize("mark", ["# newdoc", "-DOCSTART- O"])
@pytest.mark.parametrize("num_documents", [4, 5])
def test_documents_are_not_divided_among_folds(num_documents: int, mark: str, tmp_path: Path) -> None:
    """This needs at least five documents; fewer are ignored."""
    row = "{0}\t{1}\t_\t{2}" + "\t_" * 6 + "\n" if "#" in mark else "{1}\t{2}\n"
    sentence = "".join(row.format(*values) for values in ((1, "dogs", "N"), (2, "bark", "V")))
    document = mark + "\n" * (1 if "#" in mark else 2) + (sentence + "\n") * 6
    (tmp_path / "a.conllu").write_text(document * num_documents)
    format = "conllu" if "#" in mark else "columns"
    job = LabelingJob(read_recipe("tag-linear", {"data.train": str(tmp_path / "a.conllu"), "data.format": format}))
    folds = job.task.folds.reshape(num_documents, 6)
    assert (folds == folds[:, :1]).all() == (num_documents == 5)
    assert {*folds.ravel().tolist()} == {*range(5)}
