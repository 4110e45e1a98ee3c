"""Clients of other projects: the package openai, and lm-eval."""

import math
from pathlib import Path
from typing import Any

import pytest

from ensue.library import load
from ensue.metrics.scores import LanguageScores
from extensions.serving.running import TEXT, Running, language_run

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language_run(tmp_path_factory.mktemp("clients") / "run")


def test_the_client_of_openai_completes_texts(run: Path) -> None:
    openai = pytest.importorskip("openai")
    with Running(run, options=("--key", "secret")) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="secret")
        assert [model.id for model in client.models.list()] == ["run"]
        assert client.models.retrieve("run").id == "run"
        fields: dict[str, Any] = {"model": "run", "prompt": "The sea", "max_tokens": 30, "seed": 2}
        completion = client.completions.create(**fields, n=2, logprobs=2, stop=["zzz"], logit_bias={"1": -5})
        assert len(completion.choices) == 2
        text = client.completions.create(**fields).choices[0].text
        pieces = list(client.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
        assert "".join(piece.choices[0].text for piece in pieces[:-1]) == text
        assert pieces[-1].usage.completion_tokens == 30
        for _ in range(2):
            client.completions.create(**fields, extra_body={"session": "a"})
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="other", prompt="a")
        with pytest.raises(openai.BadRequestError):
            client.completions.create(**fields, best_of=0)
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(model="run", input="a")
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong").models.list()


def test_the_client_of_openai_gets_the_vectors_of_embed(tmp_path: Path) -> None:
    openai = pytest.importorskip("openai")
    with Running(language_run(tmp_path / "vectors", "vectors-skipgram")) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="-")
        embeddings = client.embeddings.create(model="vectors", input=["sea", "calm"])
        expected = load(tmp_path / "vectors").embed(["sea", "calm"])
        for item, vector in zip(embeddings.data, expected, strict=True):
            assert item.embedding == pytest.approx(vector.tolist())
        plain = client.embeddings.create(model="vectors", input="sea", encoding_format="float")
        assert plain.data[0].embedding == pytest.approx(expected[0].tolist())


def test_the_log_likelihood_of_lm_eval_is_that_of_evaluate(run: Path, tmp_path: Path) -> None:
    """Also whether a continuation is the greedy one."""
    pytest.importorskip("lm_eval")
    from lm_eval.models.openai_completions import LocalCompletionsAPI  # noqa: PLC0415

    pipeline = load(run)
    before, text = TEXT[:40], TEXT[40:400]
    with Running(run) as server:
        scorer = Tokens(pipeline)
        model = LocalCompletionsAPI(
            model="run", base_url=f"{server.url}/v1/completions", tokenizer_backend=None, tokenized_requests=False,
            batch_size=4, max_length=2048,
        )  # fmt: skip
        model.tokenizer, model.tok_encode = scorer, scorer.encode
        model.tokenized_requests = True
        requests = [((before, text), scorer.encode(before), scorer.encode(text))]
        ((log_p, is_greedy),) = model._loglikelihood_tokens(requests, disable_tqdm=True)
        best = "".join(pipeline.generate(before, max_tokens=20, temperature=0))
        requests = [((before, best), scorer.encode(before), scorer.encode(best))]
        ((_, best_is_greedy),) = model._loglikelihood_tokens(requests, disable_tqdm=True)
    (tmp_path / "before.txt").write_text(before)
    (tmp_path / "all.txt").write_text(before + text)
    all_scores: LanguageScores = pipeline.evaluate(tmp_path / "all.txt", parts=1)
    first: LanguageScores = pipeline.evaluate(tmp_path / "before.txt", parts=1)
    assert -log_p == pytest.approx(all_scores.total_nats - first.total_nats, rel=1e-5)
    assert math.isfinite(log_p)
    assert (is_greedy, best_is_greedy) == (False, True)


class Tokens:
    """The tokenizer of a run with the interface of lm-eval."""

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline

    def encode(self, text: str, **_: Any) -> list[int]:
        ids: list[int] = self.pipeline.tokenizer.encode(text).tolist()
        return ids
