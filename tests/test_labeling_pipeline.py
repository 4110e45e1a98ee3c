"""Pipelines of trained taggers: order, batches, memory, offsets, and output for terminals and notebooks."""

import html
import json
import random
import re
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import pytest
import torch

from ensue.data.sentences.sentence import Sentence
from ensue.errors import DataError, EnsueError, RecipeError
from ensue.library import load
from ensue.recipe import Recipe, read_recipe
from ensue.tasks.labeling import pipeline as module
from ensue.tasks.labeling import task
from ensue.tasks.labeling.job import LabelingJob
from ensue.tasks.labeling.page import format_aligned
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.tasks.labeling.tagged_sentence import LabeledSpan, LabeledWord, TaggedSentence
from ensue.text.schemes import encode, spans
from inspection.small import parsed
from kept_runs.make import unpacked
from training.tiny import run_tiny, some_slow
from training.tiny_texts import PARTS_OF_SPEECH, columns, sentences, tagging

KINDS = ["softmax", "viterbi", "crf"]
POOL = [word for words in PARTS_OF_SPEECH.values() for word in words] + ["Anna", "Novak", "Lima", "unheard", "of", "!"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the taggers that `trained` makes."""
    folder = tmp_path_factory.mktemp("taggers")
    (folder / "names.txt").write_text(columns(sentences(120)))
    return folder


def trained(run: Path) -> Path:
    """Train the tagger that the folder's name selects: a kind of head, `plain`, or `pos`, which also reads POS tags."""
    if run.exists():
        return run
    names = run.parent / "names.txt"
    if run.name == "pos":
        recipe = tagging(names, features={"columns": ["2"]}, head={"kind": "crf"})
    elif run.name == "plain":
        recipe = tagging(names, encoder="none", data={"labels": "2"}, steps=30)
    else:
        features = {"characters": "lstm", "d_characters": 6, "affixes": 2, "d_shape": 2}
        recipe = tagging(names, head={"kind": run.name}, features=features, steps=20)
    run_tiny(recipe, run)
    return run


@pytest.fixture(params=some_slow(KINDS, "crf"))
def pipeline(request: pytest.FixtureRequest, runs: Path) -> LabelingPipeline:
    return loaded(runs / request.param)


def loaded(run: Path) -> LabelingPipeline:
    return load(trained(run), device="cpu", kind=LabelingPipeline)


def linear_recipe(runs: Path, **settings: object) -> Recipe:
    (runs / "few.txt").write_text(columns(sentences(30)))
    return read_recipe("tag-linear", {"data.train": str(runs / "few.txt"), **settings})


def test_a_linear_tagger_learns_from_all_sentences_and_is_scored_by_cross_validation(runs: Path) -> None:
    run_tiny(linear_recipe(runs), runs / "linear")
    pipeline = load(runs / "linear", device="cpu", kind=LabelingPipeline)
    assert pipeline.evaluate(runs / "few.txt").f1 == 1
    records = map(json.loads, (runs / "linear" / "metrics.jsonl").read_text().splitlines())
    (valid,) = (record for record in records if record["kind"] == "valid")
    assert valid["scores"]["sentences"] == 30
    assert "\n- validation: cross-validation\n" in (runs / "linear" / "README.md").read_text()
    assert 0.7 < valid["scores"]["f1"] <= 1
    texts = mixed(30, seed=1)
    in_batch = pipeline.predict(texts, confidence=True, n_best=2)
    for text, answer in zip(texts, in_batch, strict=True):
        (alone,) = pipeline.predict([text], confidence=True, n_best=2)
        assert alone.labels == answer.labels
        assert 1 <= len(answer.paths) <= 2
        for path, record in zip(answer.paths, answer.as_json()["paths"], strict=True):
            assert record["labels"] == path.labels
            assert record["spans"] == path.as_json()["spans"] == [span.as_json() for span in path.spans]
    assert "Emission scores" in pipeline.inspect("Anna sees Lima .").page


def test_the_strength_of_the_best_score_is_chosen(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strengths are tried until the score is not better."""
    solved, scores = list[float](), chain([3.0, 3.0, 2.0, 2.0, 2.0], repeat(0.0))
    monkeypatch.setattr(task, "INVERSE_STRENGTHS", (1.0, 10.0, 100.0, 1000.0))
    monkeypatch.setattr(task.LinearObjective, "solve", lambda *args, **options: solved.append(args[2]) or 1.0)
    monkeypatch.setattr(task.Labeling, "selection", lambda *_: next(scores))
    run_tiny(linear_recipe(runs), runs / "chosen")
    assert solved == [1.0] * 5 + [10.0] * 5 + [100.0] * 5 + [10.0]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"features.characters": "lstm"}, "head.solver"), ({"features.dropout_words": 0.1}, "head.solver"),
        ({"head.repeats": True}, "head.solver"), ({"features.d_words": 0}, "without words"),
        ({"train.steps": 2}, "needs train.steps = 1"), ({"train.clip": 2.0}, "has train.clip"),
        ({}, "at most 10 words"),
    ],
)  # fmt: skip
def test_a_solver_refuses_other_features_settings_and_too_many_words(
    runs: Path, settings: dict[str, object], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ensue.tasks.labeling.job.MAX_SOLVED_WORDS", 10)
    with pytest.raises(RecipeError, match=problem):
        run_tiny(linear_recipe(runs, **settings), runs / "refused")


def mixed(count: int, *, seed: int = 0, longest: int = 40) -> list[list[str]]:
    """Sentences of 0 to `longest` words, short ones more often."""
    choose = random.Random(seed)
    return [choose.choices(POOL, k=int(choose.random() ** 2 * longest)) for _ in range(count)]


def test_a_sentence_has_the_same_labels_alone_and_in_a_batch(pipeline: LabelingPipeline) -> None:
    """Different code labels a single sentence."""
    texts = mixed(30, seed=1)
    in_batch = pipeline.predict(texts, confidence=True)
    assert [[word.text for word in answer] for answer in in_batch] == texts
    for text, answer in zip(texts, in_batch, strict=True):
        (alone,) = pipeline.predict([text], confidence=True)
        assert alone.labels == answer.labels
        assert np.allclose([w.confidence for w in alone], [w.confidence for w in answer], rtol=0, atol=1e-5)
        assert [word.confidence for word in pipeline.predict([text])[0]] == [None] * len(text)
    assert len({tuple(answer.labels) for answer in in_batch}) > 15


def test_unknown_values_of_columns_are_counted_in_one_line(runs: Path, tmp_path: Path) -> None:
    tagger = loaded(runs / "pos")
    (tmp_path / "new.txt").write_text("the XX O\nof DET O\n\nzyzzy XX O\n")
    list(tagger.label(tagger.source(tmp_path / "new.txt", format="columns")))
    column = '2 of 3 words (67%) have a value of the column "2" that the training data do not have'
    assert column in tagger.lacking()
    assert tagger.lacking(least=4) == ""
    known = loaded(runs / "pos")
    known.evaluate(runs / "names.txt")
    assert known.lacking() == ""


def test_a_text_without_blanks_between_words_is_reported(runs: Path) -> None:
    tagger = loaded(runs / "crf")
    tagger.predict(["他们在北京大学学习中文。 Anna", "ภาษาไทยเป็นภาษาราชการ"])
    assert "2 of 4 words (50%) are text without blanks between words; ensue predict CUTTER" in tagger.lacking()
    split = loaded(runs / "crf")
    split.predict(["他们 在 北京 大学 学习 中文 。", "ไทย " * 20 + "มหาวิทยาลัย", "Donaudampfschifffahrt"])
    assert "without blanks" not in split.lacking()


def test_a_single_sentence_is_read_with_other_columns(runs: Path) -> None:
    pipeline = loaded(runs / "pos")
    source = list(pipeline.source(runs / "names.txt"))
    together = [answer.labels for answer in pipeline.label(source)]
    assert [next(pipeline.label([sentence])).labels for sentence in source] == together
    other = runs / "relabeled.txt"  # every word is a determiner
    other.write_text(re.sub(r"^(\S+) \S+", r"\1 DET", (runs / "names.txt").read_text(), flags=re.MULTILINE))
    assert [next(pipeline.label([sentence])).labels for sentence in pipeline.source(other)] != together


@pytest.mark.parametrize("text", ["The old house", ["The", "old", "house"]])
def test_a_model_of_other_columns_refuses_plain_words(text: str | list[str], runs: Path) -> None:
    with pytest.raises(DataError, match='the model also reads the column "2"; found a sentence without columns'):
        loaded(runs / "pos").predict([text])
    assert loaded(runs / "pos").predict(["", []]) == [TaggedSentence("", (), True)] * 2


@pytest.mark.slow
def test_a_new_word_does_not_cost_a_copy_of_all_others(runs: Path) -> None:
    pipeline = loaded(runs / "plain")
    addresses = set()
    for number in range(300):
        pipeline.predict([[f"word{number}"]])
        addresses.add(pipeline.reader.memory.look_up([])[0].vectors.data_ptr())
    assert len(addresses) < 15


@pytest.mark.parametrize("words", [(), ("the", "house")])
def test_a_stream_is_read_in_chunks(words: tuple[str, ...], runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences without words count towards a chunk."""
    monkeypatch.setattr(module, "CHUNK_WORDS", 100)
    pipeline = loaded(runs / "plain")
    read = 0

    def stream() -> Iterator[Sentence]:
        nonlocal read
        for _ in range(1000):
            read += 1
            yield Sentence(words)

    answers = enumerate(pipeline.label(stream(), confidence=True))
    assert all(read - n <= 101 and len(answer.labels) == len(words) for n, answer in answers)
    assert read == 1000


def test_confidence_is_the_marginal_probability_of_the_label(pipeline: LabelingPipeline) -> None:
    texts = [text for text in mixed(40, seed=3) if text]
    for text, answer in zip(texts, pipeline.predict(texts, confidence=True), strict=True):
        forms, words = pipeline.reader.read([text])
        x = pipeline.model.features.assemble(
            forms.vectors, torch.from_numpy(words.values.astype(np.int64))[None], torch.zeros(1, len(text), 0).long()
        )
        with torch.no_grad():
            emissions = pipeline.model.emissions(x, forms.keys[words.values][None])
            shares = pipeline.model.head.marginals(emissions, None)[0]
        assert torch.allclose(shares.sum(-1), torch.ones(len(text)), atol=1e-5)
        assert (shares >= 0).all()
        tags = pipeline.model.head.best(emissions, None)[0].tolist()
        assert pipeline.labels.decode(tags) == answer.labels
        written = {"B": "B", "S": "B", "I": "I", "E": "I"}  # the bio prefixes of iobes tags
        for word, share in zip(answer, shares, strict=True):
            alike = [
                float(probability)
                for tag, probability in zip(pipeline.labels.tags.symbols, share, strict=True)
                if tag == word.label
                or (pipeline.labels.scheme and "-" in tag and written[tag[0]] + tag[1:] == word.label)
            ]
            assert sum(alike) == pytest.approx(word.confidence, abs=1e-5)


def test_spans_agree_with_labels(pipeline: LabelingPipeline) -> None:
    for answer in pipeline.predict([" ".join(text) for text in mixed(50, seed=4)]):
        spans_of_words = [(span.label, span.start, span.end) for span in spans(answer.labels)]
        assert answer.labels == encode(spans(answer.labels), len(answer), "bio")
        assert [
            (span.label, answer.words[start].start, answer.words[end - 1].end)
            for span, (_, start, end) in zip(answer.spans, spans_of_words, strict=True)
        ] == [(span.label, span.start, span.end) for span in answer.spans]
        for span in answer.spans:
            assert answer.text[span.start : span.end] == span.text
            assert repr(span) == f"{span.text!r} {span.label}"


def test_labels_without_a_scheme_have_no_spans(runs: Path) -> None:
    """JSON has the words and their labels instead."""
    (runs / "text.jsonl").write_text('{"text":"The old house."}\n')
    record = json.loads("".join(loaded(runs / "plain").prediction_lines(str(runs / "text.jsonl"))))
    assert (record["tokens"], len(record["labels"])) == (["The", "old", "house", "."], 4)
    (answer,) = loaded(runs / "plain").predict(["The old house."])
    assert answer.spans == []
    assert set(answer.labels) <= {*PARTS_OF_SPEECH}
    assert repr(answer) == " ".join(f"{word.text}/{word.label}" for word in answer)


UNLABELED = {
    "a.txt": "Anna sees the old house\n", "a.csv": "id,text\n1,Anna sees the old house\n",
    "a.tsv": "id\ttext\n1\tAnna sees the old house\n", "a.jsonl": '{"text": "Anna sees the old house"}\n',
}  # fmt: skip


READ_BACK = [(name, file) for name in ("tag-lstm", "tag-lstm-crf", "tag-nested", "tag-columns") for file in UNLABELED]
READ_BACK.remove(("tag-columns", "a.txt"))  # several columns without names


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "file"), READ_BACK)
def test_predictions_for_texts_are_read_as_labels(name: str, file: str, tmp_path: Path) -> None:
    unpacked(name, tmp_path)
    tagger = load(tmp_path / name, device="cpu", kind=LabelingPipeline)
    (tmp_path / file).write_text(UNLABELED[file])
    out = tmp_path / ("out.txt" if file == "a.txt" else "out.jsonl")
    out.write_text("".join(tagger.prediction_lines(str(tmp_path / file))))
    assert tagger.evaluate(out).accuracy == 1


TEXTS = [
    "Anna sees the old house.",
    " blanks  at both\tends \u00a0",
    "e\u0301te\u0301 and \u00e9t\u00e9, na\u00efve",
    "\u05d0\u05e0\u05d4 \u05e8\u05d5\u05d0\u05d4 \u05d1\u05d9\u05ea \u05d9\u05e9\u05df.",
    "\u0631\u0623\u062a \u0622\u0646\u0627 \u0627\u0644\u0628\u064a\u062a\u060c \u200f(2024)\u200e!",
    "a family \U0001f468\u200d\U0001f469\u200d\U0001f467, a flag \U0001f1f5\U0001f1ea\U0001f1f3\U0001f1f4"
    " and \U0001f44d\U0001f3fd done",
    "\u4e2d\u6587\u6ca1\u6709\u7a7a\u683c\u3002 \u65e5\u672c\u8a9e",
    "NUL \x00 and \x07 bell",
    "line\nbreaks\r\nin it\u2028too",
    "don't can't we'll",
    "",
    "   ",
]


def test_offsets_of_words_point_into_the_text(runs: Path) -> None:
    for text, answer in zip(TEXTS, loaded(runs / "crf").predict(TEXTS), strict=True):
        assert len(answer.text) == len(text)
        assert answer.text.split() == text.split()
        end = 0
        for word in answer:
            assert answer.text[word.start : word.end] == word.text == text[word.start : word.end]
            assert answer.text[end : word.start].strip() == ""
            end = word.end
        assert answer.text[end:].strip() == ""


def test_lists_of_words_are_not_tokenized(runs: Path) -> None:
    words = ["don't", "New York", "", "a,b"]
    (answer,) = loaded(runs / "crf").predict([words])
    assert [word.text for word in answer] == words
    assert answer.text == "don't New York  a,b"
    assert [answer.text[word.start : word.end] for word in answer] == words


def test_probabilities_that_were_not_computed_are_in_no_json(runs: Path) -> None:
    for run in ("crf", "plain"):
        shown = {
            with_confidence: str(loaded(runs / run).predict(["Anna sees it"], confidence=with_confidence)[0].as_json())
            for with_confidence in (False, True)
        }
        assert [
            re.search("confidence|probability", shown[with_confidence]) is not None for with_confidence in (False, True)
        ] == [
            False,
            True,
        ]
    columns = LabeledWord("a", "D", 0, 1, columns={"upos": "D", "feats": "_"})
    assert "confidence" not in columns.as_json()
    assert columns._replace(confidence={"upos": 0.25, "feats": 1.0}).as_json()["confidence"] == {
        "upos": 0.25,
        "feats": 1.0,
    }


HOSTILE = '<script>alert("Anna & co")</script>'


def test_a_notebook_shows_html_in_texts_as_text(runs: Path) -> None:
    for run in ("crf", "plain"):
        (answer,) = loaded(runs / run).predict([f"Anna Novak {HOSTILE} sees Lima"])
        shown = answer._repr_html_()
        assert "<script" not in shown
        assert html.unescape(re.sub(r"<sub.*?</sub>|<[^>]*>", "", shown)).replace(" ", "") == answer.text.replace(
            " ", ""
        )
    evil = TaggedSentence("a <b>", (LabeledWord("a", '"><img src=x>', 0, 1), LabeledWord("<b>", "O", 2, 5)))
    assert "<img" not in evil._repr_html_()
    spanned = TaggedSentence("<i>x</i>", (LabeledWord("<i>x</i>", "B-<u>", 0, 8),), has_spans=True)
    assert "<i>" not in spanned._repr_html_()
    assert "<u>" not in spanned._repr_html_()


def test_spans_that_cross_are_split_in_a_notebook() -> None:
    """HTML elements must nest. Texts and labels keep their order."""
    labels, places = ["B-A", "I-A|B-B", "I-B"], [(0, 1), (2, 3), (4, 5)]
    words = tuple(
        LabeledWord("abc"[n], label, *place) for n, (label, place) in enumerate(zip(labels, places, strict=True))
    )
    crossed = TaggedSentence("a b c", words, has_spans=True, overlap=True)
    assert repr(crossed) == "[a [b A] c B]"
    shown = re.sub(r" style=\"[^\"]*\"", "", crossed._repr_html_())
    assert shown == "<div><span>a <span>b</span> <sub>A</sub></span><span> c <sub>B</sub></span></div>"
    empty = TaggedSentence("a", (LabeledWord("a", "A", 0, 1), LabeledWord("", "B", 1, 1)))
    parsed(empty._repr_html_())
    assert "</sub></span><span" in empty._repr_html_()


def test_repr_is_short_and_describes_sentence_and_pipeline(runs: Path) -> None:
    words = (LabeledWord("Anna", "B-PER", 0, 4), LabeledWord("Novak", "I-PER", 5, 10), LabeledWord("!", "O", 10, 11))
    assert repr(TaggedSentence("Anna Novak!", words, has_spans=True)) == "[Anna Novak PER]!"
    assert repr(TaggedSentence("Anna Novak!", words)) == "Anna/B-PER Novak/I-PER !/O"
    assert TaggedSentence("Anna Novak!", words, has_spans=True).spans == [LabeledSpan("Anna Novak", "PER", 0, 10)]
    pipeline = loaded(runs / "crf")
    parameters = f"{pipeline.num_parameters:,} parameters"
    assert repr(pipeline) == (
        f"LabelingPipeline(lstm 1×8, crf, {parameters}, Labels(5 labels, scheme='bio', 9 tags), "
        f"run={str(runs / 'crf')!r})"
    )


def test_evaluate_scores_the_answers_of_predict(runs: Path, tmp_path: Path) -> None:
    path, tagged = tmp_path / "test.txt", sentences(50, seed=9)
    path.write_text(columns(tagged))
    pipeline = loaded(runs / "crf")
    answers = pipeline.predict([s.words for s in tagged])
    scores = pipeline.evaluate(path)
    right = sum(a == b for s, t in zip(tagged, answers, strict=True) for a, b in zip(s.labels(), t.labels, strict=True))
    predicted = [{(n, *span) for span in spans(t.labels)} for n, t in enumerate(answers)]
    gold = [{(n, *span) for span in s.spans} for n, s in enumerate(tagged)]
    both = sum(len(f & g) for f, g in zip(predicted, gold, strict=True))
    assert scores.accuracy == right / sum(len(s.words) for s in tagged)
    assert scores.precision == both / sum(map(len, predicted))
    assert scores.recall == both / sum(map(len, gold))
    assert pipeline.protocol(scores) == "spans are read and counted as conlleval does"


def test_a_file_of_one_sentence_is_scored_as_the_training_data_are_read(runs: Path, tmp_path: Path) -> None:
    """Without the recipe's format, such a file is detected as plain text."""
    path = tmp_path / "one.txt"
    path.write_text("Anna PROPN B-PER\nsees VERB O\n")
    assert loaded(runs / "crf").evaluate(path).tokens == 2
    (tmp_path / "blank.txt").write_text("\n\n")
    with pytest.raises(EnsueError, match=r"blank.txt: no labeled words"):
        loaded(runs / "crf").evaluate(tmp_path / "blank.txt")


TREEBANK = """# text = Dogs barked
1\tDogs\tdog\tNOUN\tNNS\tNumber=Plur\t2\tnsubj\t_\t_
2\tbarked\tbark\tVERB\tVBD\tTense=Past|VerbForm=Fin\t0\troot\t_\tSpaceAfter=No

1\tA\ta\tDET\tDT\t_\t2\tdet\t_\t_
2\tcat\tcat\tNOUN\tNN\tNumber=Sing\t3\tnsubj\t_\t_
3-4\tdidn't\t_\t_\t_\t_\t_\t_\t_\t_
3\tdid\tdo\tAUX\tVBD\tTense=Past|VerbForm=Fin\t0\troot\t_\t_
4\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_

"""


def test_a_tagger_of_several_columns_writes_and_scores_each(tmp_path: Path) -> None:
    gold = tmp_path / "gold.conllu"
    gold.write_text(TREEBANK * 5)
    names = ["upos", "feats", "lemma"]
    data = {"labels": names, "valid": str(gold), "format": "conllu"}
    run_tiny(tagging(gold, data=data, steps=40), tmp_path / "run")
    tagger = loaded(tmp_path / "run")
    scores = tagger.evaluate(gold)
    assert scores.accuracy == 1.0
    scores_of_columns = {name: (score.f1, score.support) for name, score in scores.per_label.items()}
    assert scores_of_columns == dict.fromkeys(names, (1.0, 30))
    blank = tmp_path / "blank.conllu"
    blank.write_text(
        re.sub(r"^(\d+\t[^\t]+)\t[^\t]+\t[^\t]+\t(\S+)\t\S+", r"\1\t_\t_\t\2\t_", gold.read_text(), flags=re.M)
    )
    assert "dog" not in blank.read_text().replace("Dogs", "")
    assert "".join(tagger.prediction_lines(str(blank))) == gold.read_text()
    (tmp_path / "texts.csv").write_text("id,text\n7,Dogs barked\n")
    (tmp_path / "labeled.jsonl").write_text("".join(tagger.prediction_lines(str(tmp_path / "texts.csv"))))
    columns = {"upos": ["NOUN", "VERB"], "feats": ["Number=Plur", "Tense=Past|VerbForm=Fin"], "lemma": ["dog", "bark"]}
    record = {"id": "7", "text": "Dogs barked", "tokens": ["Dogs", "barked"], **columns}
    assert json.loads((tmp_path / "labeled.jsonl").read_text()) == record
    assert tagger.evaluate(tmp_path / "labeled.jsonl").accuracy == 1
    (answer,) = tagger.predict_json([["Dogs", "barked"]])
    first = answer["words"][0]
    assert [first[name] for name in names] == ["NOUN", "Number=Plur", "dog"]
    assert all(0.5 < first["confidence"][name] <= 1 for name in names)
    with pytest.raises(EnsueError, match="this one has upos, feats, lemma"):
        tagger.inspect("Dogs barked")
    (best,) = tagger.predict([["Dogs", "barked"]], n_best=2)
    assert [word.columns for word in best.paths[0]] == [word.columns for word in best]
    first = best.as_json()["paths"][0]
    assert first["columns"]["lemma"] == ["dog", "bark"]
    assert first["probability"] > best.as_json()["paths"][1]["probability"]


NESTED = [
    ("Bank of Lima grew", [[0, 12, "ORG"], [8, 12, "LOC"]]),
    ("Lima grew", [[0, 4, "LOC"]]),
    ("News of Bank of Lima came", [[0, 20, "NP"], [8, 20, "NP"], [8, 20, "ORG"], [16, 20, "LOC"], [0, 4, "NP"]]),
]


@pytest.mark.slow
def test_spans_that_overlap_are_learned_scored_and_written(tmp_path: Path) -> None:
    gold = tmp_path / "gold.jsonl"
    rows = [{"id": n, "text": text, "spans": spans} for n, (text, spans) in enumerate(NESTED * 4)]
    gold.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="overlap; the recipe tag-nested learns overlapping spans"):
        run_tiny(tagging(gold), tmp_path / "flat")
    data = {"nested": 2, "valid": str(gold)}
    run_tiny(tagging(gold, data=data, head={"kind": "crf"}, steps=60), tmp_path / "run")
    tagger = loaded(tmp_path / "run")
    scores = tagger.evaluate(gold)
    scores_of_labels = {name: (score.f1, score.support) for name, score in scores.per_label.items()}
    assert scores_of_labels == {"LOC": (1.0, 12), "NP": (1.0, 12), "ORG": (1.0, 8)}
    assert (scores.f1, scores.accuracy, scores.is_spans) == (1.0, 1.0, True)
    assert "".join(tagger.prediction_lines(str(gold))) == gold.read_text()
    bare = tmp_path / "bare.jsonl"
    bare.write_text('{"text": "Bank of Lima grew", "spans": []}\n{"text":"Lima grew"}\n')
    first, second = map(json.loads, "".join(tagger.prediction_lines(str(bare))).splitlines())
    assert [tuple(span.values()) for span in first["spans"]] == [(0, 12, "ORG"), (8, 12, "LOC")]
    assert second["spans"] == [{"start": 0, "end": 4, "label": "LOC"}]
    (answer,) = tagger.predict(["Bank of Lima grew"], confidence=True)
    assert repr(answer) == "[Bank of [Lima LOC] ORG] grew"
    assert re.sub(r"<[^>]*>", "", answer._repr_html_()) == "Bank of Lima LOC ORG grew"
    (record,) = tagger.predict_json(["Bank of Lima grew"])
    assert [(span["text"], span["label"]) for span in record["spans"]] == [("Bank of Lima", "ORG"), ("Lima", "LOC")]
    assert all(0.5 < span["probability"] <= 1 for span in record["spans"])
    assert [word["label"] for word in record["words"]] == ["B-ORG", "I-ORG", "B-LOC|I-ORG", "O"]
    assert tagger.scored_items(gold).compute()["f1"] == 1.0


def test_layers_that_are_not_learned_are_counted(tmp_path: Path) -> None:
    data = tmp_path / "gold.jsonl"
    data.write_text("".join(json.dumps({"text": text, "spans": spans}) + "\n" for text, spans in NESTED * 4))
    job = LabelingJob(tagging(data, data={"nested": 1}))
    assert any("6 spans of the training data are not learned: data.nested=1" in note for note in job.notes)
    with pytest.raises(EnsueError, match="several columns of labels"):
        tagging(data, data={"nested": 1, "labels": ["spans", "entities"]})


def test_a_terminal_has_a_line_for_each_layer_of_spans() -> None:
    words = tuple(
        LabeledWord(word, label, 0, 0) for word, label in (("Bank", "B-ORG"), ("Lima", "B-LOC|I-ORG"), ("grew", "O"))
    )
    shown = format_aligned(TaggedSentence("", words, has_spans=True, overlap=True), 80)
    assert [re.sub(r"\x1b\[[\d;]*m", "", line).split() for line in shown.splitlines()] == [
        ["Bank", "Lima", "grew"], ["B-ORG", "I-ORG", "O"], ["O", "B-LOC", "O"],
    ]  # fmt: skip
