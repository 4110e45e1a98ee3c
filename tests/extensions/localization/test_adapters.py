"""Translation with a glossary, and of texts with markup."""

import json
import re
from pathlib import Path

import pytest

import ensue
from ensue.data.examples import Pair, PairLayout
from ensue.errors import EnsueError
from ensue.notices import Notice
from ensue.tasks.sequence_to_sequence.model import EncoderDecoderParts
from ensue.tasks.sequence_to_sequence.pipeline import SequencePipeline
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from training.tiny_pairs import DECODERS, LSTM, pair_recipe, pairs, sources_of, translated


@pytest.fixture
def pipeline(learned: Path) -> SequencePipeline:
    return ensue.load(learned / "learned", device="cpu", kind=SequencePipeline)


@pytest.mark.slow
def test_every_output_obeys_the_glossary(pipeline: SequencePipeline, tmp_path: Path) -> None:
    """With one and several outputs and in an ensemble; outputs stay equal if no term applies."""
    sources = [*sources_of(pairs(12, seed=2)), "the bird sees the door"]
    terms = [("cat", "Amsel"), ("door", "!Tür"), ("", "!eine")]
    for model in (pipeline, pipeline.with_search(n_best=3), pipeline.with_others(), pipeline.with_others(pipeline)):
        for source, output in zip(sources, model.predict(sources, glossary=terms), strict=True):
            for variant in (output, *output.others):
                words = variant.text.split()
                assert not variant.lacks
                assert ("Amsel" in words) >= ("cat" in source)
                assert ("Tür" not in words) >= ("door" in source)
                assert "eine" not in words
    path = tmp_path / "terms.tsv"
    path.write_text("zebra\tTür\n", encoding="utf-8")
    assert [variant.text for variant in pipeline.predict(sources, glossary=path)] == [
        variant.text for variant in pipeline.predict(sources)
    ]


def test_a_term_that_the_search_does_not_reach_is_listed(pipeline: SequencePipeline) -> None:
    demanding = pipeline.with_search(width=1, max_tokens=3).with_glossary([("the", "Tür Tür Tür"), ("", "!rote")])
    with pytest.raises(EnsueError, match=r'pair 2.*"Tür Tür Tür" an output has 5 tokens or more; the maximum is 3'):
        demanding.with_glossary([("the", "sieht sieht"), ("", "Tür Tür Tür")]).predict(["the cat"])
    (output,) = demanding.with_glossary([("", "Tür"), ("", "rote"), ("", "hört")]).predict(["the cat sees a door"])
    assert output.lacks == () or set(output.lacks) <= {"Tür", "rote", "hört"}
    assert json.loads(json.dumps(output.as_json())).get("lacks", []) == list(output.lacks)


def test_markup_stays_with_its_words(pipeline: SequencePipeline) -> None:
    source, plain = "the <b>big cat</b> sees {0} a <i>door</i>", "the big cat sees a door"
    with_markup = pipeline.with_search(n_best=3).with_markup()
    (output,), (bare,) = with_markup.predict([source]), pipeline.predict([plain])
    assert re.sub(r"<.*?>|\{0\} ", "", output.text) == bare.text == translated(plain)
    for variant in (output, *output.others):
        assert re.findall(r"</?\w>|\{0\}", variant.text).count("{0}") == 1
        assert re.sub(r"[^<>/ib]", "", re.sub(r"\w{2,}", "", variant.text)) in ("<b></b><i></i>", "<i></i><b></b>")
    assert pipeline.predict([source], keep_markup=True)[0].text == output.text
    (document,) = with_markup.predict_json([source])
    assert document["text"] == output.text
    assert document["source"] == source
    assert document["source_tokens"][:-1] == plain.split()
    (output,) = pipeline.predict([source], glossary=[("cat", "Amsel")], keep_markup=True)
    assert "Amsel" in output.text
    with pytest.raises(EnsueError, match="exported programs have no markup"):
        with_markup.describe()
    assert with_markup.predict(["<br/>", ""])[0].text == "<br/>"


def test_markup_without_attention_is_placed_by_position(learned: Path) -> None:
    attention, _ = DECODERS["plain"]
    recipe = pair_recipe(learned / "train.tsv", encoder=LSTM, decoder=LSTM, attention=attention)
    parts = EncoderDecoderParts(PairCoder.train([Pair(("a b c d",), ("a b c d",))], recipe.tokenizer, None))
    layout = PairLayout("tsv")
    model = SequencePipeline(parts.build(recipe), parts.coder, recipe=recipe, layout=layout, ratio=1.0, run="plain")
    with pytest.warns(Notice, match="plain: the model has no attention; markup is inserted at the same"):
        (output,) = model.with_search(min_tokens=4).predict(["<b>a b</b> c d {x}"], keep_markup=True)
    words = re.sub(r"</?b>", "", output.text).split()
    assert words[-1] == "{x}"
    assert output.text.split()[0].startswith("<b>")
    assert " </b>" not in output.text
