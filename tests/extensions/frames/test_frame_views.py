"""The numbers of views of frame models agree with independent computations, and pages show them."""

import re
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch

from ensue.errors import EnsueError
from ensue.extensions.frames.data.series import FrameRows, Series
from ensue.extensions.frames.frame_prediction.model import PRIOR_DRAWS, compute_nats
from ensue.extensions.frames.frame_prediction.pipeline import PRIOR_SEED
from ensue.extensions.frames.page import FrameColumns, draw_bars, draw_image, draw_labels, draw_map
from ensue.extensions.frames.tasks.data import SeriesNoise
from ensue.extensions.frames.tasks.model import Frames
from ensue.inspection.drawing import choose_ticks, plot
from ensue.inspection.page import as_json
from ensue.text.labels import Classes
from extensions.frames.small_frames import DEVIATION, MEAN, frame_classifier, frame_predictor, frame_tagger, frames
from inspection.small import SPANS, Node, number, parsed

pytestmark = pytest.mark.usefixtures("in_torch_operations")  # compiled cells have tests of their own
TRANSFORMER = {"kind": "transformer", "d_model": 8, "num_heads": 2, "num_layers": 1, "context": 64}


def tooltips(section: Node, pattern: str) -> list[tuple[str, ...]]:
    """Return the groups of the tooltips that match a pattern."""
    return [match.groups() for title in section.titles() if (match := re.fullmatch(pattern, title))]


def log_odds(pipeline: Any, x: np.ndarray[Any, Any], label: int) -> float:
    """Return log odds from the probabilities of `predict`, in float64."""
    p = float(list(pipeline.predict([x])[0].probabilities.values())[label])
    return float(np.log(p / (1 - p)))


def test_gradients_of_frames_are_slopes_of_the_log_odds() -> None:
    """The finite differences scale all features of a frame."""
    pipeline, x = frame_classifier(head={"pooling": ["mean"]}), frames(4)
    view = pipeline.inspect(x).view
    for t in range(4):
        moved = []
        for share in (1e-2, -1e-2):
            other = x.astype(np.float64)
            other[t] += share * (other[t] - MEAN)
            moved.append(log_odds(pipeline, other.astype(np.float32), view.label))
        assert view.gradients[t] == pytest.approx((moved[0] - moved[1]) / 2e-2, abs=2e-3)


def test_integrated_gradients_of_frames_add_up() -> None:
    """The path begins at a series of means, as `predict` reads it; a frame of means has no attribution."""
    pipeline, x = frame_classifier(head={"pooling": ["mean"]}), frames(6)
    x[2] = MEAN
    view = pipeline.inspect(x).view
    log_odds_difference = log_odds(pipeline, x, view.label) - log_odds(pipeline, np.full_like(x, MEAN), view.label)
    assert view.integrated.shares.sum() == pytest.approx(log_odds_difference, abs=0.03)
    assert view.integrated.shares[2] == view.gradients[2] == 0


def test_a_missing_value_is_read_as_the_mean_and_drawn_as_a_gap() -> None:
    pipeline, x = frame_classifier(), frames(6)
    x[3, 1] = MEAN
    expected = pipeline.inspect(x).view
    x[3, 1] = np.nan
    inspection = pipeline.inspect(x)
    view, page = inspection.view, parsed(inspection.page)
    np.testing.assert_allclose(view.gradients, expected.gradients, atol=1e-7)
    np.testing.assert_allclose(view.integrated.shares, expected.integrated.shares, atol=1e-7)
    section = page.section("The series")
    assert "1 of 18 values is missing" in section.text
    (drawn,) = [path for path in section.all("path", "line") if (path.attributes["d"] or "").count("M") == 2]
    assert drawn is list(section.all("path", "line"))[1]
    assert "feature 1 missing" in section.titles()[3]
    assert as_json(view)["frames"][3][1] is None


@pytest.mark.parametrize("pooling", ["attention", "max"])
def test_a_view_of_pooling_has_the_attention_weights_or_the_shares_of_maxima(pooling: str) -> None:
    pipeline, x = frame_classifier(head={"pooling": [pooling]}), frames(7)
    view = pipeline.inspect(x).view
    model = pipeline.model
    with torch.no_grad():
        h = model.layers((torch.from_numpy(x)[None] - MEAN) / DEVIATION)[0]
        pooled = model.pooling(h, None)[0]
    if pooling == "attention":
        np.testing.assert_allclose(view.attention @ h[0].numpy(), pooled.numpy(), atol=1e-5)
        assert view.maxima is None
    else:
        wins = [int(column.argmax()) for column in h[0].T]
        np.testing.assert_allclose(view.maxima, np.bincount(wins, minlength=7) / len(wins), atol=1e-7)


def test_the_page_of_a_classifier_has_the_numbers_of_its_view() -> None:
    pipeline, x = frame_classifier(head={"pooling": ["attention", "max"]}), frames(9)
    inspection = pipeline.inspect(x)
    view, page = inspection.view, parsed(inspection.page)
    label = pipeline.labels.names[view.label]
    assert label == pipeline.predict([x])[0].label
    expected = list(pipeline.predict([x])[0].probabilities.values())
    assert view.probabilities == pytest.approx(expected, abs=1e-6)
    for heading, what, values in (
        (f"Contributions of frames to “{label}”", "contribution", view.gradients),
        ("Integrated gradients", "share", view.integrated.shares),
        ("Attention pooling", "weight", view.attention),
        ("Max pooling", "share of maxima", view.maxima),
    ):
        rows = tooltips(page.section(heading), rf"frame (\d+)\n{what} (\S+)")
        assert [int(t) for t, _ in rows] == list(range(9))
        assert [number(value) for _, value in rows] == pytest.approx(values.tolist(), rel=1e-4, abs=1e-9), heading
    titles = page.section("The series").titles()
    assert titles[4] == "\n".join(
        ["frame 4", *(f"feature {n} {value:.5g}".replace("-", "−") for n, value in enumerate(x[4]))]
    )
    assert [heading.text for heading in page.section("Inside").all("h3")] == [
        "layer 1, left to right", "layer 1, right to left"
    ]  # fmt: skip
    assert len(inspection.page) - len(inspection.content) < 400_000


def test_the_page_explains_several_labels_and_attention() -> None:
    pipeline = frame_classifier(classes=Classes(["a", "b"], multiple=True, threshold=0.25), encoder=TRANSFORMER)
    page = parsed(pipeline.inspect(frames(5)).page)
    assert "A series has every label whose probability is at least 0.25" in page.section("Labels").text
    assert "the row of a frame has the attention weights of the frame" in page.section("Inside").text


def best_paths(emissions: np.ndarray[Any, Any], tables: Any) -> tuple[float, tuple[int, ...]]:
    """Return the best paths and the log partition by enumeration."""
    start, pairs, end = tables
    scores = {
        tags: start[tags[0]] + end[tags[-1]] + sum(emissions[t, tag] for t, tag in enumerate(tags))
        + sum(pairs[a, b] for a, b in pairwise(tags))
        for tags in product(range(emissions.shape[1]), repeat=len(emissions))
    }  # fmt: skip
    best = max(scores, key=scores.__getitem__)
    log_partition = np.logaddexp.reduce(list(scores.values()))
    return float(np.exp(scores[best] - log_partition)), best


def test_the_view_of_a_tagger_has_its_emissions_best_path_and_marginals() -> None:
    """Emissions are those of the layers, paths those of an enumeration, labels and probabilities those of `predict`."""
    pipeline, x = frame_tagger(), frames(5)
    view = pipeline.inspect(x).view
    model = pipeline.model
    with torch.no_grad():
        h = model.layers((torch.from_numpy(x)[None] - MEAN) / DEVIATION)[0]
        np.testing.assert_allclose(view.emissions, model.head.projection(h)[0].numpy(), atol=1e-5)
    probability, path = best_paths(view.emissions, view.tables)
    assert tuple(view.path) == path == tuple(view.paths[0].tags)
    assert view.paths[0].probability == pytest.approx(probability, abs=1e-5)
    (answer,) = pipeline.predict([x], confidence=True)
    assert view.said == answer.labels
    path_marginals = view.marginals[np.arange(5), view.path]
    assert path_marginals == pytest.approx(answer.probabilities, abs=1e-5)


@pytest.mark.parametrize("head", ["crf", "softmax"])
def test_the_page_of_a_tagger_has_the_numbers_of_its_view(head: str) -> None:
    pipeline = frame_tagger(head, columns=("x", "y", "z"))
    gold = ("NOUN",) * 4 + ("VERB",) * 4
    inspection = pipeline.inspect(Series("walk", frames(8), gold, per_frame=True))
    view, page = inspection.view, parsed(inspection.page)
    rows = tooltips(page.section("Probabilities"), r"frame (\d+), (\S+) s\nDET (\S+)\nNOUN (\S+)\nVERB (\S+)")
    for t, row in enumerate(rows):
        assert [float(part) for part in row] == pytest.approx([t, t / 10, *view.marginals[t]], rel=1e-4)
    assert len(rows) == 8
    rows = tooltips(page.section("Emission scores"), r"frame (\d+), .*\nDET (\S+)\nNOUN (\S+)\nVERB (\S+)")
    assert [[number(value) for value in row[1:]] for row in rows] == pytest.approx(view.emissions, rel=1e-4)
    labels = page.section("The labels")
    assert tooltips(labels, r"frame \d+, .*\nmodel (\S+)\nfile (\S+)") == list(zip(view.said, gold, strict=True))
    right = sum(a == b for a, b in zip(view.said, gold, strict=True))
    assert f"{right} of 8 predicted labels equal the labels in the file" in labels.text
    headings = [heading.text for heading in page.all("h2")]
    assert ("Transition scores" in headings) == ("The best paths" in headings) == (head == "crf")
    assert page.section("The series").titles()[0].startswith("frame 0, 0 s\nx ")
    assert "emission scores e(tag) of a frame" in page.section("Emission scores and").text


def test_spans_over_time_have_the_labels_of_the_file() -> None:
    inspection = frame_tagger(labels=SPANS).inspect(frames(12))
    predicted = inspection.view.said
    assert set(predicted) <= set(SPANS.names)
    assert tooltips(parsed(inspection.page).section("The labels"), r"frame \d+, .*\nmodel (\S+)") == [
        (one,) for one in predicted
    ]


def test_the_page_of_a_plain_model_has_its_predictions() -> None:
    pipeline, x = frame_predictor(), frames(6, 2)
    x[4, 1] = np.nan
    view = pipeline.inspect(x).view
    for t in range(1, 6):
        (prediction,) = pipeline.predict([x[:t]])
        np.testing.assert_allclose(view.mean[t], prediction.mean, rtol=1e-5)
        np.testing.assert_allclose(view.deviation[t], prediction.deviation, rtol=1e-5)
    np.testing.assert_allclose(view.nats, pipeline.score(x), rtol=1e-5)
    assert view.divergence is None
    np.testing.assert_allclose(view.weights.sum(1), 1, atol=1e-6)


@torch.no_grad()
def expected_by_hand(pipeline: Any, x: np.ndarray[Any, Any], t: int) -> tuple[Any, Any]:
    """Return the mean and the deviation of frame t from draws of the prior, with the layers over all earlier frames."""
    model, size = pipeline.model, 2
    reader, values = model.reader, (torch.from_numpy(x)[None] - MEAN) / DEVIATION
    noise = torch.from_numpy(SeriesNoise(x, size).draw())[None]
    drawn = SeriesNoise(x, size, seed=PRIOR_SEED).draw(PRIOR_DRAWS * len(x)).reshape(PRIOR_DRAWS, len(x), size)
    means, squares = [], []
    for draw in torch.from_numpy(drawn):
        if pipeline.recipe.latent.kind == "storn":
            mean, rest = reader.posterior(reader.recognition(values)[0]).chunk(2, -1)
            z = mean + (torch.nn.functional.softplus(rest) + 1e-4) * noise
            z[0, t] = draw[t]
            before = torch.cat((torch.zeros(1, 1, 2), values[:, :-1]), 1)
            decoded = reader.layers(torch.cat((before, z), -1)[:, : t + 1])[0][:, t]
        else:
            state = reader.layer.init_state(1)
            for earlier in range(t):
                _, state = reader.layer.step(torch.cat((values[:, earlier], noise[:, earlier]), -1), state)
            decoded = model.reader.open(draw[t][None], state)[0]
        weights, (mean, log_deviation) = model.head(decoded)
        means.append((weights.exp()[..., None] * mean).sum(-2)[0])
        squares.append((weights.exp()[..., None] * (mean.square() + (2 * log_deviation).exp())).sum(-2)[0])
    mean = torch.stack(means).mean(0)
    return mean * DEVIATION + MEAN, (torch.stack(squares).mean(0) - mean.square()).sqrt() * DEVIATION


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["storn", "vrnn"])
def test_the_page_of_a_latent_model_has_draws_from_the_prior(kind: str) -> None:
    pipeline, x = frame_predictor(kind), frames(4, 2)
    view = pipeline.inspect(x).view
    for t in (0, 1, 3):
        mean, deviation = expected_by_hand(pipeline, x, t)
        np.testing.assert_allclose(view.mean[t], mean, rtol=1e-4)
        np.testing.assert_allclose(view.deviation[t], deviation, rtol=1e-3)
    np.testing.assert_allclose(view.nats, pipeline.score(x), rtol=1e-5)
    assert view.divergence.min() > 0


@pytest.mark.parametrize("kind", ["storn", "vrnn"])
def test_importance_sampling_is_the_mean_of_the_weights(kind: str) -> None:
    model, x = frame_predictor(kind).model, frames(4, 2)
    source, weights, bounds = SeriesNoise(x, 2), [], []
    for _ in range(3):
        with torch.no_grad():
            nats, divergence, ratio = model(
                Frames(torch.from_numpy(x)[None], None), torch.from_numpy(source.draw())[None]
            )
        weights.append(np.exp(-float((nats + ratio).sum())))
        bounds.append((nats + divergence)[0].numpy())
    (nats_of_series,) = compute_nats(model, FrameRows.of([x]), draws=3)
    assert nats_of_series.importance == pytest.approx(-np.log(np.mean(weights)), rel=1e-4)
    np.testing.assert_allclose(nats_of_series.frames, np.mean(bounds, 0), rtol=1e-4)


@pytest.mark.parametrize("width", [2, 9])
def test_the_page_of_a_frame_predictor_has_the_numbers_of_its_view(width: int) -> None:
    pipeline, x = frame_predictor("vrnn", width=width), frames(8, width)
    inspection = pipeline.inspect(x)
    view, page = inspection.view, parsed(inspection.page)
    rows = tooltips(page.section("Nats"), r"frame \d+\nbound (\S+)\nframe (\S+)\ndivergence (\S+)")
    values = np.stack([view.nats, view.nats - view.divergence, view.divergence], 1)
    assert [[number(part) for part in row] for row in rows] == pytest.approx(values, rel=1e-4)
    section = page.section("Predicted distributions")
    if width == 2:
        rows = tooltips(section, r"frame \d+\nframe (\S+)\nmean (\S+)\ndeviation (\S+)")
        values = np.concatenate(np.stack([x, view.mean, view.deviation], 2).transpose(1, 0, 2))
        assert [[number(part) for part in row] for row in rows] == pytest.approx(values, rel=1e-4)
        assert len(list(section.all("path", "spread"))) == 2
    else:
        last_rows = tooltips(section, "".join([r"frame \d+", *[rf"\nfeature {n} (\S+)" for n in range(9)]]))[-8:]
        values = (x - view.mean) / view.deviation
        assert [[number(part) for part in row] for row in last_rows] == pytest.approx(values, rel=1e-3, abs=1e-4)
    assert "drawn from their prior" in section.text
    rows = tooltips(page.section("Components"), r"frame \d+\nk = 0 (\S+)\nk = 1 (\S+)")
    assert [[number(part) for part in row] for row in rows] == pytest.approx(view.weights, rel=1e-4)
    facts = {item.text for item in next(page.all("ul", "facts")).all("li")}
    assert f"nats per frame {view.nats.mean():.4f}" in facts
    assert len(inspection.page) - len(inspection.content) < 400_000


@pytest.mark.slow
def test_long_series_are_truncated_with_a_note() -> None:
    inspection = frame_tagger("softmax", encoder={"kind": "none"}).inspect(frames(700))
    page = parsed(inspection.page)
    assert len(inspection.view.emissions) == 700
    for heading in ("The series", "The labels", "Probabilities"):
        assert "The first 500 of 700 frames are shown." in page.section(heading).text
    assert "The first 60 of 700 frames are shown." in page.section("Emission scores and").text
    assert len(inspection.content) < 1_000_000
    with pytest.raises(EnsueError, match="0 has 10,001 frames; up to 10,000 can be inspected"):
        frame_tagger("softmax", encoder={"kind": "none"}).inspect(frames(10_001))


@pytest.mark.slow
def test_many_features_are_drawn_as_a_map_and_images_as_images() -> None:
    pipeline = frame_classifier(width=12)
    x = frames(4, 12).clip(0, 255) / 255
    sections = [
        parsed(pipeline.inspect(Series("x", x, ("up",), colors=colors)).content).section("The series")
        for colors in (0, 3)
    ]
    assert [len(list(section.all("image"))) for section in sections] == [1, 1]
    assert "The label in the file: up." in sections[0].text
    assert [title.split("\n")[0] for title in sections[1].titles()] == [f"frame {n}" for n in range(4)]
    assert "Each row of the image is a frame" in sections[1].text


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-3.2, 0.1), (5, 5), (0, 0), (1000.5, 1000.6), (-1e30, 1e30), (3e-9, 4e-9), (-7, -7)]
)
def test_ticks_are_round_and_enclose_the_range(low: float, high: float) -> None:
    ticks = choose_ticks(low, high)
    assert 2 <= len(ticks) <= 8
    assert ticks[0] <= low + 1e-6 * abs(low)
    assert high - 1e-6 * abs(high) <= ticks[-1]
    step = ticks[1] - ticks[0]
    assert float(f"{step:.3g}") == pytest.approx(step, rel=1e-3)


@pytest.mark.parametrize("value", [np.nan, 0.0, 3e38, -1e-40])
def test_drawings_of_nan_and_extreme_values_have_only_finite_numbers(value: float) -> None:
    columns, values = FrameColumns(3), np.full((3, 9), value)
    values[1] = 0
    names = [f"<{n}>" for n in range(9)]
    drawings = [
        plot({"<a>": values[:, 0]}, columns, name="x", ranges={"<a>": (values[:, 0] - 1, values[:, 0] + 1)}),
        draw_bars(values[:, 0], columns, name="x", what="w"),
        draw_map(values, columns, names, name="x"),
        draw_map(values, columns, names, name="x", signed=True),
        draw_image(values, columns, colors=3, name="x"),
        draw_labels({"<m>": ["<a>", "<a>", "b"]}, columns, colors={"<a>": "#fff", "b": "#000"}),
    ]
    for drawing in drawings:
        for node in parsed(drawing).all():
            assert not re.search(r"\b(nan|inf)\b", " ".join(str(v) for k, v in node.attributes.items() if k != "href"))
