"""Sequence-to-sequence pipelines: training, predictions in order, and scores of outputs."""

import json
from pathlib import Path

import pytest
import torch

import ensue
from ensue.data.examples import Pair
from ensue.errors import DataError, EnsueError, RunError
from ensue.recipe.tables import TokenizerRecipe
from ensue.runs.schema import validate_content
from ensue.tasks.sequence_to_sequence import task
from ensue.tasks.sequence_to_sequence.model import SequenceConfig
from ensue.tasks.sequence_to_sequence.pipeline import SequencePipeline
from ensue.tasks.sequence_to_sequence.task import Sources, mean_surprisals
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.tasks.sequence_to_sequence.writer import Output
from training.tiny import run_tiny, some_slow
from training.tiny_pairs import DECODERS, LSTM, SMALL, pair_recipe, pairs, sources_of, translated


@pytest.fixture
def pipeline(learned: Path) -> SequencePipeline:
    return ensue.load(learned / "learned", device="cpu", kind=SequencePipeline)


def some_sources(count: int = 30) -> list[str]:
    return sources_of(pairs(count, seed=2))


def test_it_learns_to_translate(pipeline: SequencePipeline, learned: Path) -> None:
    scores = pipeline.evaluate(learned / "test.tsv").as_json()
    items = pipeline.scored_items(learned / "test.tsv").compute()
    assert items == pytest.approx({name: scores[name] for name in items})
    assert scores["exact_match"] >= 90
    assert scores["bleu"] >= 95
    assert scores["examples"] == 40
    assert {"bleu", "chrf", "exact_match", "edit_rate", "nats_per_token", "signature", "rouge1", "rougeL"} <= set(
        scores
    )


def test_single_words_are_compared_by_characters(pipeline: SequencePipeline) -> None:
    """A few references may have a blank, such as separable verbs among inflected forms."""
    words = [Pair(("a",), ("ging",)), Pair(("b",), ("lief",)), Pair(("a b",), ("fing an",))]
    scores = pipeline.score_pairs(words)
    assert "tok:char" in scores.signature
    assert scores.rouge is None
    assert "tok:none" in pipeline.score_pairs(words[2:]).signature


def test_outputs_do_not_depend_on_the_batch(pipeline: SequencePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = some_sources(10)
    together = pipeline.predict(sources)
    assert [output.text for output in together] == [pipeline.predict([source])[0].text for source in sources]
    monkeypatch.setattr("ensue.tasks.sequence_to_sequence.task.CHUNK_SOURCES", 3)
    assert [str(output) for output in pipeline.predict(sources[::-1])] == [str(output) for output in together[::-1]]


def test_log_probabilities_of_outputs_equal_those_of_score(pipeline: SequencePipeline) -> None:
    for source in some_sources(2):
        (output,) = pipeline.with_search(n_best=3, length_penalty=0.7).predict([source])
        for each in (output, *output.others):
            assert each.is_complete
            assert pipeline.score(source, each.text) == pytest.approx(-each.log_probability, abs=1e-4)
            tokens = len(pipeline.coder.encode([source], [each.text])[1][0])
            assert each.score == pytest.approx(each.log_probability / tokens**0.7)
        assert output.score >= max(other.score for other in output.others)


@pytest.mark.slow
def test_an_ensemble_has_its_shortest_context(pipeline: SequencePipeline, learned: Path, tmp_path: Path) -> None:
    layers = SMALL["encoder"] | {"positions": "learned", "context": 9}
    run_tiny(pair_recipe(learned / "train.tsv", encoder=layers, decoder=layers, train={"steps": 1}), tmp_path / "other")
    other = ensue.load(tmp_path / "other", device="cpu")
    for together in (pipeline.with_others(other), other.with_others(pipeline)):
        assert max(len(output.ids) for output in together.with_search(min_tokens=8).predict(["the cat"])) == 8
        with pytest.raises(DataError, match=r"13 tokens; .* up to 9"):
            together.predict(["the cat " * 6])
        with pytest.raises(DataError, match=r"13 tokens; .* up to 9"):
            together.inspect("the cat " * 6)


def test_outputs_cut_at_max_tokens_are_not_complete(pipeline: SequencePipeline) -> None:
    (output,) = pipeline.with_search(max_tokens=2, width=1).predict(["the big red cat sees the door"])
    assert not output.is_complete
    assert len(output.text.split()) == 2


def test_an_ensemble_averages_probabilities(pipeline: SequencePipeline, learned: Path) -> None:
    twice, other = pipeline.with_others(pipeline), ensue.load(learned / "learned", device="cpu")
    for one, two in zip(pipeline.predict(some_sources(3)), twice.predict(some_sources(3)), strict=True):
        assert one.text == two.text
        assert one.score == pytest.approx(two.score, abs=1e-5)
    with torch.no_grad():
        for parameter in other.model.parameters():
            parameter.mul_(0.5)
    sources, targets = pipeline.encode([(Pair(("the cat",)), "die Katze")])
    begin_id, rows = pipeline.target.begin_id, Sources(sources.rows)
    both = [next(mean_surprisals([each.model], rows, targets, begin_id=begin_id))[1] for each in (pipeline, other)]
    expected = -((-both[0]).exp() + (-both[1]).exp()).div(2).log().sum()
    assert pipeline.with_others(other).score("the cat", "die Katze") == pytest.approx(float(expected), abs=1e-5)


def test_an_ensemble_needs_equal_vocabularies(pipeline: SequencePipeline, learned: Path, tmp_path: Path) -> None:
    (tmp_path / "other.tsv").write_text("a b\tc d\ne f\tg h\ni j\tk l\n")
    run_tiny(pair_recipe(tmp_path / "other.tsv", train={"steps": 1}), tmp_path / "other")
    with pytest.raises(EnsueError, match="other tokens than"):
        pipeline.with_others(ensue.load(tmp_path / "other"))


def test_evaluate_compares_with_another_run(pipeline: SequencePipeline, learned: Path) -> None:
    worse = pipeline.with_search(max_tokens=3)
    comparison = pipeline.evaluate(learned / "test.tsv", compare=worse).as_json()["comparison"]
    assert comparison["bleu"][0] > comparison["bleu"][1]
    assert comparison["p_bleu"] < 0.05


def test_mean_surprisal_equals_nats_per_token(pipeline: SequencePipeline, learned: Path) -> None:
    rows = [Pair(*((part,) for part in line.split("\t"))) for line in (learned / "test.tsv").read_text().splitlines()]
    surprisals = list(pipeline.surprisal(rows))
    mean = sum(nats for _, _, nats, _ in surprisals) / sum(tokens for *_, tokens in surprisals)
    assert pipeline.evaluate(learned / "test.tsv").nats_per_token == pytest.approx(mean)


@pytest.fixture
def lines(learned: Path, tmp_path: Path) -> Path:
    path = tmp_path / "sources.txt"
    path.write_text("".join(f"{source}\n" for source in some_sources(5)) + "\nthe cat\n")
    return path


def test_predictions_have_a_line_for_each_line(pipeline: SequencePipeline, lines: Path) -> None:
    plain = list(pipeline.prediction_lines(str(lines), format=None, encoding="utf-8", as_json=False, color=False))
    assert len(plain) == 7
    assert all(line.count("\n") == 1 and line.endswith("\n") for line in plain)
    right = sum(line.rstrip("\n") == translated(source) for line, source in zip(plain, some_sources(5), strict=False))
    assert right >= 4
    several = pipeline.with_search(n_best=2)
    rows = list(several.prediction_lines(str(lines), format=None, encoding="utf-8", as_json=False, color=False))
    assert [row.split("\t")[0] for row in rows] == [*"1122334455", "6", *"77"]
    assert (plain[5], rows[10]) == ("\n", "6\t0.0000\t\n")  # the empty line has an empty output
    json_lines = several.prediction_lines(str(lines), format=None, encoding="utf-8", as_json=True, color=False)
    records = [json.loads(row) for row in json_lines]
    assert [record["text"] for record in records] == [row.rstrip("\n") for row in plain]
    assert [len(record["outputs"]) for record in records] == [2] * 5 + [1, 2]


@pytest.mark.parametrize("empty", ["", " ", "\u3000\t", "\x1c"])
def test_the_output_of_an_empty_source_is_empty(pipeline: SequencePipeline, empty: str) -> None:
    """The outputs of other sources do not change."""
    texts = [empty, *some_sources(2), empty]
    outputs = pipeline.with_search(n_best=2).predict(texts)
    assert [output.text for output in outputs[::3]] == ["", ""]
    assert [output.others for output in outputs[::3]] == [(), ()]
    assert [output.text for output in outputs[1:3]] == [output.text for output in pipeline.predict(texts[1:3])]
    assert [*pipeline.predict([empty])] == [Output("", 0.0, 0.0)]
    assert [row["text"] for row in pipeline.predict_json(texts)] == [output.text for output in outputs]


@pytest.mark.slow
@pytest.mark.parametrize("name", some_slow(["learned", "feeding", "copying", "plain"], "learned", "copying"))
def test_alignments_equal_those_of_the_inspector(name: str, learned: Path, tmp_path: Path) -> None:
    if name != "learned":
        attention, head = DECODERS[name]
        recipe = pair_recipe(
            learned / "train.tsv", encoder=LSTM, decoder=LSTM, attention=attention, head=head, train={"steps": 2}
        )
        run_tiny(recipe, tmp_path / name)
    model = ensue.load((learned if name == "learned" else tmp_path) / name).with_search(max_tokens=6)
    sources = ["the cat sees a door", "a big red dog hears the bird"]
    answers = [(Pair((source,)), output) for source, output in zip(sources, model.predict(sources), strict=True)]
    for (pair, output), alignment in zip(answers, model.aligned(answers), strict=True):
        expected = model.inspect(pair.sources[0]).view
        if name == "plain":
            assert alignment is None
            assert expected.alignment is None
            continue
        assert alignment.source == expected.source
        assert alignment.output == expected.output[: len(output.ids)]
        assert list(alignment.positions) == expected.alignment.argmax(1)[: len(output.ids)].tolist()


def test_score_lines_are_nats_tokens_and_target(pipeline: SequencePipeline, learned: Path) -> None:
    plain = list(pipeline.score_lines(str(learned / "test.tsv")))
    records = [json.loads(row) for row in pipeline.score_lines(str(learned / "test.tsv"), as_json=True)]
    assert len(plain) == len(records) == 40
    nats, tokens, target = plain[0].split("\t")
    assert float(nats) == pytest.approx(records[0]["nats"], abs=1e-4)
    assert (int(tokens), target) == (records[0]["tokens"], records[0]["target"])


def test_wrong_arguments_are_errors_of_one_line(pipeline: SequencePipeline) -> None:
    with pytest.raises(EnsueError, match="texts"):
        pipeline.predict("a text that is not in a list")
    with pytest.raises(EnsueError, match="width is 0"):
        pipeline.with_search(width=0)
    with pytest.raises(EnsueError, match='a search has no "beams"; expected one of width, n_best, '):
        pipeline.with_search(beams=3)
    assert pipeline.predict([]) == []
    assert "→" in repr(pipeline)


@pytest.mark.slow
def test_two_threads_give_the_outputs_of_one(pipeline: SequencePipeline) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    sources = some_sources(12)
    expected = [str(output) for output in pipeline.predict(sources)]
    with ThreadPoolExecutor(2) as threads:
        outputs = list(threads.map(lambda source: str(pipeline.predict([source])[0]), sources))
    assert outputs == expected
    assert torch.is_grad_enabled()


def test_a_wide_beam_searches_few_sources_at_once(pipeline: SequencePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    begin = task.init_decoding
    monkeypatch.setattr(
        task,
        "init_decoding",
        lambda models, sources, ids, **options: rows.append(len(ids)) or begin(models, sources, ids),
    )
    monkeypatch.setattr(task, "MAX_HYPOTHESES", 20)
    assert [str(output) for output in pipeline.with_search(width=6).predict(some_sources(7))]
    assert max(rows) == 3
    rows.clear()
    pipeline.with_search(width=30).predict(some_sources(2))
    assert rows == [1, 1]


@pytest.mark.parametrize("column", [[1.5, "a"], ["a", 1], [1], [1, "a", "b"], [-1, "a"]])
def test_invalid_columns_are_reported_as_damage(
    column: list[object], pipeline: SequencePipeline, learned: Path
) -> None:
    content = pipeline.layout.to_json()
    config = json.loads((learned / "learned" / "config.json").read_text())
    validate_content(SequenceConfig, config | {"layout": content}, "config.json")
    with pytest.raises(RunError, match=r"config.json: damaged: layout.sources.0"):
        validate_content(SequenceConfig, config | {"layout": content | {"sources": [column]}}, "config.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lowercase": "yes"}, "lowercase: expected true or false, found 'yes'"),
        ({"symbols": []}, "the first symbols must be"),
        ({"format_version": 2}, "format_version 2 is newer than this program"),
        ({"kind": "letters"}, ".*found 'letters'"),
    ],
)
def test_invalid_tokenizers_are_refused(change: dict[str, object], message: str, pipeline: SequencePipeline) -> None:
    content = pipeline.coder.to_json()
    assert PairCoder.from_json(content).to_json() == content
    content["source"]["tokenizer"] |= change
    with pytest.raises(ValueError, match=rf"^source.tokenizer.*{message}"):
        PairCoder.from_json(content)


def test_spans_of_source_tokens_cover_the_text() -> None:
    text = "Größe , the cat's"
    for kind in ("words", "bpe", "characters", "bytes", "wordpiece"):
        coder = PairCoder.train([Pair((text,), (text,))], TokenizerRecipe.model_validate({"kind": kind}), None)
        spans, ids = coder.source_spans(text), coder.encode((text,))[0]
        assert len(spans) == len(ids) - 1, kind
        assert {place for span in spans for place in range(*span)} >= {n for n, c in enumerate(text) if c != " "}
