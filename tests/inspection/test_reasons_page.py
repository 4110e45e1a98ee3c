"""Pages show contributions to a prediction, and changes without units."""

import json

import numpy as np
import pytest
import torch

from inspection.language_models import TEXT, model_of
from inspection.small import Node, number, parsed


def numbers_of_section(section: Node) -> dict[str, list[float | None]]:
    (script,) = section.all("script")
    numbers: dict[str, list[float | None]] = json.loads(script.text)
    return numbers


def cells(row: Node) -> list[str]:
    return [cell.text for cell in row.all("td")]


def test_contributions_of_tokens_and_changes_without_units_are_shown() -> None:
    inspection = model_of("lstm").inspect(TEXT, at=9, off="layer 1, cell: 0-3; layer 2, hidden: 1 = mean")
    view, page = inspection.view, parsed(inspection.page)
    explanation, section = view.explanation, page.section("Why this token")
    shares = explanation.integrated.shares
    assert f"“{view.tokens[8]}”) = {explanation.integrated.value:.4f}".replace("-", "−") in section.text
    rows = [cells(row) for row in section.all("tr")][1:]
    assert [int(row[1]) for row in rows] == (1 + np.argsort(-np.abs(shares), kind="stable")).tolist()
    assert [number(row[2]) for row in rows] == pytest.approx(sorted(shares, key=lambda share: -abs(share)), abs=1e-4)
    (colors, states) = (json.loads(script.text) for script in section.all("script"))
    assert colors["integrated gradients"] == pytest.approx(shares.tolist(), rel=1e-4)
    assert colors["length of the gradient"] == pytest.approx(explanation.norms.tolist(), rel=1e-4)
    assert states["names"] == [f"layer {layer}, {kind}" for layer in (1, 2) for kind in ("cell", "hidden")]
    lengths = np.linalg.norm(explanation.states[0].values, axis=1)
    assert 10 ** np.array(states["values"][0]) == pytest.approx(lengths, rel=1e-3)

    fields = {box.attributes["name"]: box.attributes["value"] for box in page.section("Ask").all("input")}
    assert fields == {"at": "9", "token": "", "off": "layer 1, cell: 0-3; layer 2, hidden: 1 = mean"}
    section, without = page.section("Without some units"), view.predictions_without
    changes = without.surprisals[:-1] - view.predictions.surprisals[:-1]
    assert "layer 1, cell: 0-3; layer 2, hidden: 1 = mean. Nats per token:" in section.text
    assert f"{without.surprisals[:-1].mean():.4f} without these units" in section.text
    assert numbers_of_section(section)["change of surprisal"] == pytest.approx(changes.tolist(), abs=1e-4)
    worst = cells(list(section.all("tr"))[1])
    assert int(worst[1]) == 1 + np.abs(changes).argmax()
    assert number(worst[4]) == pytest.approx(changes[int(worst[1]) - 1], abs=1e-3)


@torch.no_grad()
def test_a_model_with_nan_has_a_page() -> None:
    pipeline = model_of("lstm")
    pipeline.model.head.bias[3] = torch.nan
    page = parsed(pipeline.inspect("The sea was calm", at=5, off="layer 1, cell: 0").page)
    assert set(numbers_of_section(page.section("Without some units"))["change of surprisal"]) == {None}
    assert "NaN" not in "".join(script.text for script in page.all("script") if script.attributes.get("type"))
