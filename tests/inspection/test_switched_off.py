"""Fixed units: at zero, like zero outgoing weights, and at their mean."""

import numpy as np
import pytest
import torch
from torch import Tensor

from ensue.errors import EnsueError
from ensue.inspection.switched_off import SwitchedOff, parse_switched_off
from ensue.nn import replace, watch
from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from inspection.language_models import TEXT, model_of


def without(pipeline: LanguagePipeline, off: str) -> np.ndarray:  # type: ignore[type-arg]
    view = pipeline.inspect(TEXT, off=off).view
    assert view.predictions_without is not None
    assert not np.allclose(view.predictions_without.surprisals[1:-1], view.predictions.surprisals[1:-1], atol=1e-3)
    surprisals: np.ndarray = view.predictions_without.surprisals[:-1]  # type: ignore[type-arg]
    return surprisals


@torch.no_grad()
def test_units_at_zero_equal_zero_outgoing_weights() -> None:
    pipeline = model_of("lstm")
    surprisals = without(pipeline, "layer 1, hidden: 2, 4-5")
    first, second = (module for module in pipeline.model.modules() if type(module).__name__ == "LSTM")
    for weight in (first.weight_hidden, second.weight_input):  # type: ignore[union-attr]
        weight[:, [2, 4, 5]] = 0  # type: ignore[index, operator]
    assert surprisals == pytest.approx([score.nats for score in pipeline.score(TEXT)], abs=1e-4)


@pytest.mark.slow
@torch.no_grad()
def test_neurons_of_a_transformer_at_zero_equal_zero_outgoing_weights() -> None:
    pipeline = model_of("transformer")
    surprisals = without(pipeline, "layer 2, neurons: 0, 3")
    block = [module for module in pipeline.model.modules() if type(module).__name__ == "FeedForward"][1]
    *_, last = (module for module in block.modules() if isinstance(module, torch.nn.Linear))
    last.weight[:, [0, 3]] = 0
    assert surprisals == pytest.approx([score.nats for score in pipeline.score(TEXT)], abs=1e-4)


@torch.no_grad()
def test_units_at_their_mean_and_at_a_number_equal_steps_by_hand() -> None:
    """The reference steps through the text and replaces units of each state."""
    pipeline = model_of("gru")
    view, model = pipeline.inspect(TEXT).view, pipeline.model.eval()
    (hidden,) = (units.values for units in view.units if units.name == "layer 1, hidden")
    mean = float(hidden[:, 1].mean(dtype=np.float64))
    surprisals = without(pipeline, "layer 1, hidden: 1 = mean; layer 1, hidden: 3=-0.5")
    state, nats = None, []
    for id, target in zip([pipeline.tokenizer.start_id, *view.ids.tolist()], view.ids.tolist(), strict=False):
        _, state = model.layers.step(model.features(torch.tensor([id])), state)
        (of_gru,) = (leaf for leaf in state if leaf is not None)
        of_gru.h[0, [1, 3]] = torch.tensor([mean, -0.5])
        nats.append(-float(model.head(of_gru.h)[0].log_softmax(-1)[target]))
    assert surprisals == pytest.approx(nats, abs=1e-4)


def test_only_the_named_units_are_fixed_and_at_every_position() -> None:
    pipeline = model_of("lstm")
    model, ids = pipeline.model.eval(), torch.from_numpy(pipeline.tokenizer.encode(TEXT[:9]).astype(np.int64)[None])

    def values_of(**fixed: float) -> Tensor:
        changes = {"*.0.cell": lambda c: c.index_fill(1, torch.tensor([2]), fixed["at"])} if fixed else {}
        with torch.no_grad(), replace(model.layers, changes), watch(model.layers) as taps:
            model.layers(model.features(ids))
        return torch.cat(next(values for name, values in taps.items() if name.endswith(".0.cell")))

    plain, fixed = values_of(), values_of(at=0.25)
    assert (fixed[:, 2] == 0.25).all()
    torch.testing.assert_close(fixed[0, [0, 1, 3]], plain[0, [0, 1, 3]])


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("", ()),
        ("layer 1, cell: 3", (SwitchedOff("layer 1, cell", (3,)),)),
        (" layer 1, cell:9, 3 - 5,4 ; ", (SwitchedOff("layer 1, cell", (3, 4, 5, 9)),)),
        ("a:0=mean;b:1=-2.5", (SwitchedOff("a", (0,), None), SwitchedOff("b", (1,), -2.5))),
    ],
)
def test_specifications_of_units_are_parsed(text: str, units: tuple[SwitchedOff, ...]) -> None:
    assert parse_switched_off(text) == units
    assert parse_switched_off("; ".join(unit.name for unit in units)) == units


@pytest.mark.parametrize(
    ("off", "message"),
    [
        ("cell", 'expected units to switch off, such as "layer 1, cell: 3, 7-9" or "... = mean"; found "cell"'),
        ("layer 1, cell: 3-", '"3-" is neither a unit\'s number nor a range such as 7-9'),
        ("layer 1, cell: 4,,5", '"" is neither a unit\'s number'),
        ("layer 1, cell: 5-4", '"5-4" is not a range of units'),
        ("layer 1, cell: 0-99999999999", '"0-99999999999" is not a range of units'),
        ("layer 1, cell: " + "9" * 5000, f'"{"9" * 40}" is not a range of units'),
        ("layer 1, cell: 0-90000, 0-90000", "expected at most 100,000 units to switch off"),
        ("layer 1, cell: 3 = nan", 'units must be held at a number or at their mean; found "nan"'),
        ("layer 1, cel: 3", 'the model has no units "layer 1, cel"; did you mean "layer 1, cell"?; it has: layer 1, '),
        ("layer 1, cell: 1, 6", "layer 1, cell has units 0 to 5; found 6"),
    ],
)
def test_unknown_units_are_refused(off: str, message: str) -> None:
    with pytest.raises(EnsueError) as error:
        PIPELINE.inspect("The sea", off=off)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at": 1}, "at is 1; no token is read before token 1, so it has no explanation"),
        ({"at": -1}, "at is -1; expected a whole number from 0 to 7"),
        ({"at": 8}, "at is 8; expected a whole number from 0 to 7"),
        ({"token": "ab"}, '"ab" is 2 tokens of this model; expected one'),
        ({"token": ""}, '"" is 0 tokens of this model; expected one'),
    ],
)
def test_tokens_that_cannot_be_explained_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(EnsueError) as error:
        PIPELINE.inspect("The sea", **options)  # type: ignore[arg-type]
    assert str(error.value) == message


PIPELINE = model_of("lstm")
