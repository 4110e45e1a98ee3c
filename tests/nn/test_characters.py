"""Encoders of words from characters equal torch's LSTM and convolution, and do not depend on the batch."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ensue.nn import CharacterCNN, CharacterLSTM

NUM_CHARACTERS, LENGTHS = 9, [4, 1, 0, 6, 2]
ENCODERS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: CharacterLSTM(NUM_CHARACTERS, d_character=3, d_out=6),
    "cnn": lambda: CharacterCNN(NUM_CHARACTERS, d_character=3, d_out=6),
    "cnn of several widths": lambda: CharacterCNN(NUM_CHARACTERS, d_character=3, d_out=6, widths=(1, 4, 5)),
}


def built(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make().double()


def words(filling: int = 0, lengths: list[int] = LENGTHS) -> tuple[Tensor, Tensor]:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    ids = torch.randint(NUM_CHARACTERS, mask.shape, generator=torch.Generator().manual_seed(1))
    return ids.masked_fill(~mask, filling), mask


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_the_vector_of_a_word_does_not_depend_on_the_batch(make: Callable[[], nn.Module]) -> None:
    """One word is shorter than a filter, and one has no characters."""
    encoder, (ids, mask) = built(make), words()
    together = encoder(ids, mask)
    assert together.shape == (len(LENGTHS), 6)
    assert together.isfinite().all()
    for u, length in enumerate(LENGTHS):
        torch.testing.assert_close(encoder(ids[u : u + 1, :length]), together[u : u + 1])


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_padding_changes_no_vector_and_no_gradient(make: Callable[[], nn.Module]) -> None:
    """The padding has other characters, or is longer."""
    encoder, results = built(make), []
    for filling, more in ((0, 0), (3, 0), (0, 5)):
        ids, mask = words(filling)
        y = encoder(F.pad(ids, (0, more)), F.pad(mask, (0, more)))
        results.append((y, torch.autograd.grad(y.square().sum(), list(encoder.parameters()))))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
    torch.testing.assert_close(results[2], results[0])


def test_the_lstm_equals_that_of_torch() -> None:
    """The vector is the final forward state ⊕ the final backward state of a bidirectional LSTM."""
    ours, theirs = built(ENCODERS["lstm"]), nn.LSTM(3, 3, bidirectional=True, batch_first=True).double()
    assert isinstance(ours, CharacterLSTM)
    with torch.no_grad():
        for suffix, layer in (("", ours.rightward), ("_reverse", ours.leftward)):
            getattr(theirs, f"weight_ih_l0{suffix}").copy_(layer.weight_input)
            getattr(theirs, f"weight_hh_l0{suffix}").copy_(layer.weight_hidden)
            getattr(theirs, f"bias_ih_l0{suffix}").copy_(layer.bias)
            getattr(theirs, f"bias_hh_l0{suffix}").zero_()
    ids, mask = words()
    vectors = ours(ids, mask)
    for u, length in enumerate(LENGTHS):
        if length:
            _, (h, _) = theirs(ours.embedding.weight[ids[u : u + 1, :length]])
            torch.testing.assert_close(vectors[u], torch.cat((h[0, 0], h[1, 0])))
        else:
            assert not vectors[u].any()


@pytest.mark.parametrize("widths", [(3,), (1, 4), (5, 2)])
def test_the_cnn_equals_convolutions_of_torch(widths: tuple[int, ...]) -> None:
    """The vector is the maximum of conv1d over the word padded with zeros."""
    d_out = 4
    ours = built(lambda: CharacterCNN(NUM_CHARACTERS, d_character=3, d_out=d_out, widths=widths))
    assert isinstance(ours, CharacterCNN)
    ids, mask = words()
    vectors = ours(ids, mask)
    for u, length in enumerate(LENGTHS):
        x = ours.embedding.weight[ids[u, :length]].T.unsqueeze(0)
        expected = []
        for width, linear in zip(widths, ours.filters, strict=True):
            assert isinstance(linear, nn.Linear)
            kernel = linear.weight.view(-1, width, 3).transpose(1, 2)
            padded = F.pad(x, ((width - 1) // 2, width // 2))
            if length:
                expected.append(F.conv1d(padded, kernel, linear.bias)[0].amax(1))
        torch.testing.assert_close(vectors[u], torch.cat(expected) if length else torch.zeros(d_out).double())


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_gradients_equal_finite_differences(make: Callable[[], nn.Module]) -> None:
    encoder, (ids, mask) = built(make), words()
    names = [name for name, _ in encoder.named_parameters()]

    def function(*parameters: Tensor) -> Tensor:
        return torch.func.functional_call(encoder, dict(zip(names, parameters, strict=True)), (ids, mask))  # type: ignore

    assert torch.autograd.gradcheck(function, list(encoder.parameters()), fast_mode=True)


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
@pytest.mark.parametrize(("rows", "length"), [(0, 3), (2, 0)])
def test_batches_and_words_may_be_empty(make: Callable[[], nn.Module], rows: int, length: int) -> None:
    vectors = built(make)(torch.zeros(rows, length, dtype=torch.int64), torch.zeros(rows, length, dtype=torch.bool))
    assert vectors.tolist() == [[0.0] * 6] * rows


def test_wrong_sizes_are_named() -> None:
    with pytest.raises(ValueError, match=r"d_out must be even \(half for each direction\), found 5"):
        CharacterLSTM(9, d_character=3, d_out=5)
    with pytest.raises(ValueError, match="d_out is divided equally among the widths; 5 is not divisible by 2"):
        CharacterCNN(9, d_character=3, d_out=5, widths=(2, 3))
    with pytest.raises(ValueError, match=r"widths must be one or more numbers of characters, found \(\)"):
        CharacterCNN(9, d_character=3, d_out=4, widths=())
    with pytest.raises(ValueError, match=r"found \(0,\)"):
        CharacterCNN(9, d_character=3, d_out=4, widths=(0,))
