"""Models as web pages and modules: their files, and the scores of ensue in Node, wasmtime and Chromium."""

import json
import math
import re
from base64 import b64encode
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_allclose

import ensue
from ensue.errors import EnsueError
from ensue.extensions.exporting.c import writing
from ensue.extensions.exporting.web import writing as web
from ensue.runs.directory import RunDirectory
from ensue.text.schemes import spans as spans_of
from ensue.version import package_text
from extensions.exporting.c import modules
from extensions.exporting.c.classifiers import KINDS as CLASSIFIERS
from extensions.exporting.c.classifiers import SIGNS, classifier
from extensions.exporting.c.models import MIXED, SAMPLINGS, pipeline
from extensions.exporting.c.printing import files_of
from extensions.exporting.c.taggers import TEXTS, pipeline_of, sentences_of
from extensions.exporting.c.transducers import KINDS as TRANSDUCERS
from extensions.exporting.c.transducers import LEMMAS, transducer
from inspection.browser import Browser
from kept_runs.make import unpacked

TEXT = MIXED + "\U0001f600 naïve\ufeff\n"
DRIVER = """
import { readFileSync } from "node:fs";
import { Worker, isMainThread, parentPort } from "node:worker_threads";
import { load } from "./sea.js";
if (!isMainThread) {
  parentPort.postMessage((await load()).score("The sea").map(token => token.nats));
} else {
  const input = JSON.parse(readFileSync(0, "utf-8")), output = {};
  for (const simd of [true, false]) {
    const model = await load({ simd }), bytes = new TextEncoder().encode(input.text), fed = model.begin(0), tokens = [];
    for (let at = 0; at < bytes.length; at += 3) tokens.push(...fed.feed(bytes.subarray(at, at + 3)));
    tokens.push(...fed.end());
    const state = model.begin(7);
    state.feed("The se"), state.next();
    const other = model.restore(state.save());
    const failures = [
      () => model.restore(new Uint8Array(9)), () => model.restore(state.save().fill(0)), () => model.begin(-1),
      () => model.begin(0.5), () => state.next({ temperature: -1 }), () => state.next({ topk: 3 }),
      () => state.next({ topK: 1.5 }), () => model.score(3), () => state.feed(3),
      () => [...model.generate("a", { top: 1 })],
    ].map(call => { try { return `no error: ${call()}`; } catch (error) { return error.message; } });
    const after = [other, state].map(of => Array.from({ length: 40 }, () => of.next().id));
    state.close();
    try { state.next(); } catch (error) { failures.push(error.message); }
    output[simd] = {
      simd: model.simd, size: model.vocabularySize, failures, after,
      score: model.score(input.text).map(token => ({ ...token, bytes: [...token.bytes] })),
      fed: tokens.map(token => [token.id, token.nats]), long: model.score("The sea. ".repeat(2000)).length,
      written: input.samplings.map(([prompt, options]) => [...model.generate(prompt, options)].join("")),
      drawn: [0, 0].map(() => [...model.generate()].join("")),
      names: [model, other].map(of => Object.getOwnPropertyNames(Object.getPrototypeOf(of))),
    };
  }
  new Worker(new URL(import.meta.url)).on("message", nats => console.log(JSON.stringify({ ...output, worker: nats })));
}
"""


def run_of(folder: Path) -> RunDirectory:
    unpacked("char-lstm", folder)
    return RunDirectory(folder / "char-lstm")


def test_the_page_contains_all_files_and_sends_no_requests(tmp_path: Path) -> None:
    compilations = []

    def compile(code: dict[str, bytes], options: tuple[str, ...]) -> bytes:
        compilations.append((code, options))
        return b"code " + " ".join(options).encode()

    run = run_of(tmp_path)
    files, notes = web.page_files(run, ensue.load(run.path, device="cpu").describe(), "page", compile)
    assert notes == []
    texts = {name: text.decode() for name, text in files.items()}
    assert set(texts) == {"page.html", "page.js", "page.d.ts", "package.json", "README.md"}
    (code, _), (_, options) = compilations
    assert "+simd128" in compilations[0][1]
    assert options == ()
    assert b'#include "page.c"' in code[web.SOURCE]
    assert b"page_feed" in code["page.c"]
    module = texts["page.js"]
    for content in (b"code " + " ".join(compilations[0][1]).encode(), b"code ", code["page.weights"]):
        assert f'"{b64encode(content).decode()}"' in module
    assert module in texts["page.html"]
    page = re.sub(r'"[A-Za-z0-9+/=]{20,}"', '""', texts["page.html"])
    assert "connect-src" not in page
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|\bfetch\b|XMLHttpRequest|\bimport\(|url\(", page)
    assert page.count("<script") == page.count("</script") == 1
    assert not any(re.search(r"\bNAME|@|{{|{%", text) for name, text in texts.items() if name.endswith((".ts", ".md")))
    assert not re.search(r"\bNAME\b|{{|{%", page)
    package = json.loads(texts["package.json"])
    assert package["type"] == "module"
    assert package["exports"]["."]["default"] == "./page.js"
    assert "License of the model: not named" in texts["README.md"]


def test_a_task_without_a_page_is_refused_with_or_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(web, "version")
    unpacked("predict-frames", tmp_path)
    have = "expected a language model, an encoder-decoder, or a tagger or classifier of texts or frames"
    with pytest.raises(EnsueError, match=f"cannot be exported as a web page; {have}"):
        ensue.export_run(tmp_path / "predict-frames", tmp_path / "out", "web")


@pytest.mark.parametrize("installed", [None, "0.11.0"])
def test_a_compiler_that_is_missing_or_old_is_named(
    installed: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(web, "version", version)
    monkeypatch.delattr(writing, "measure_precision")  # a long text has its scores later
    named = "not installed" if installed is None else r"from 0\.14 on, and 0\.11\.0 is installed"
    with pytest.raises(EnsueError, match=rf'^web needs.* {named}: pip install .*"ensue\[web\]"$'):
        ensue.export_run(run_of(tmp_path).path, tmp_path / "out", "web", precision="int8")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@modules.needs_zig
def test_an_error_of_the_compiler_is_reported() -> None:
    with pytest.raises(EnsueError, match=r"^ziglang cannot compile the model: .*error:.*[^\n]$"):
        web.compile_page({web.SOURCE: b"int f(void) { return g; }"}, ())


@pytest.mark.slow
def test_the_compiler_may_be_in_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "packages" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import sys; open(sys.argv[sys.argv.index('-o') + 1], 'w').write('code')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "packages")
    monkeypatch.setattr(web, "check_compiler", lambda: None)
    assert web.compile_page({web.SOURCE: b""}, ()) == b"code"


@modules.in_node
@pytest.mark.parametrize("kind", ["characters", "bytes", "words", "bpe"])
def test_a_module_has_the_tokens_nats_and_samples_of_ensue(kind: str, tmp_path: Path) -> None:
    model = pipeline(kind)
    modules.put_module(files_of(model, "sea"), "sea", "language", tmp_path, DRIVER)
    samplings = [("The sea", options | {"seed": seed}) for seed, options in enumerate(SAMPLINGS)]
    keys = {"top_k": "topK", "top_p": "topP", "min_p": "minP", "repetition_penalty": "repetitionPenalty"}
    inputs = [(prompt, {keys.get(key, key): value for key, value in options.items()}) for prompt, options in samplings]
    expected, ids = model.score(TEXT), model.tokenizer.encode(TEXT).tolist()
    declared = package_text(f"{web.TEMPLATES}/language.d.ts")
    for output in modules.run_module(tmp_path, "language", {"text": TEXT, "samplings": inputs}):
        assert output["size"] == model.tokenizer.vocabulary_size
        assert [token["id"] for token in output["score"]] == [id for id, _ in output["fed"]] == ids
        nats = [score.nats for score in expected]
        assert_allclose([token["nats"] for token in output["score"]], nats, rtol=1e-5, atol=1e-5)
        assert [token["nats"] for token in output["score"]] == [nats for _, nats in output["fed"]]
        units = TEXT.encode("utf-16-le")
        for token in output["score"]:
            place = units[2 * token["begin"] : 2 * token["end"]].decode("utf-16-le")
            assert token["isUnknown"] or token["text"] in (place, "<eos>") or bytes(token["bytes"]) in place.encode()
            assert place
        wanted = ["".join(model.generate(prompt, **options)) for prompt, options in samplings]
        assert output["written"] == wanted
        assert output["drawn"][0] != output["drawn"][1]
        assert output["after"][0] == output["after"][1]
        assert output["long"] == len(model.tokenizer.encode("The sea. " * 2000))
        state, seed = "the bytes are not a state of this model", "the seed is not"
        assert [message.partition(" = ")[0] for message in output["failures"]] == [
            state, state, f"{seed} from 0 to 2^63 - 1", f"{seed} a whole number", "an argument is out of range",
            'no option "topk"', "topK", "the text is not a string", "the text is neither a string nor a Uint8Array",
            'no option "top"', "the state is closed",
        ]  # fmt: skip
        for kind_of, names in zip(("Model", "State"), output["names"], strict=True):
            assert modules.members_of(kind_of, declared) - {"simd", "vocabularySize", "context"} == set(names) - {
                "constructor",
                "feeding",
            }
        assert_allclose(output["worker"], [score.nats for score in model.score("The sea")], rtol=1e-5, atol=1e-5)


@modules.in_node
def test_the_examples_of_the_folder_run(with_page: Callable[[str], Path]) -> None:
    exported = with_page("char-lstm")
    (exported / "page" / "examples.js").write_text(
        "\n".join(re.findall(r"```js\n(.*?)```", (exported / "page" / "README.md").read_text("utf-8"), re.DOTALL))
    )
    model = ensue.load(exported / "char-lstm")
    printed = modules.node(exported / "page", "examples.js")
    assert "".join(model.generate("The ", max_tokens=200, seed=1, temperature=0.8)) in printed
    nats = [float(line.rpartition(" ")[2]) for line in printed.split("\n")[:17]]
    assert_allclose(nats, [score.nats for score in model.score("The sea was calm.")], rtol=1e-5, atol=1e-5)


LARGE = ("The Sea " + "calmly" * 400 + "\U0001f600 ") * 420

TAGGER_DRIVER = """
import { readFileSync } from "node:fs";
import { load } from "./tag.js";
const input = JSON.parse(readFileSync(0, "utf-8")), output = {};
for (const simd of [true, false]) {
  const model = await load({ simd }), failures = [
    () => model.predict("a"), () => model.predict([3]), () => model.predict([[3]]),
    () => model.predict([Array(1000001).fill("a")]),
  ].map(call => { try { return `no error: ${call()}`; } catch (error) { return error.message; } });
  output[simd] = {
    simd: model.simd, labels: model.labels, texts: model.predict(input.texts), failures,
    sentences: model.predict(input.sentences),
    lone: model.predict(["a \\ud800\\udc00\\ud800 b", "a \\ud800\\udc00\\ufffd b"]),
    large: model.predict([input.large])[0].length,
    spans: model.predict(input.sentences).map(words => model.spans(words)),
    members: [...Object.getOwnPropertyNames(Object.getPrototypeOf(model)), ...Object.keys(model)],
  };
}
console.log(JSON.stringify(output));
"""


@modules.in_node
def test_a_module_has_the_words_labels_and_spans_of_ensue(tmp_path: Path) -> None:
    model = pipeline_of("spans")
    modules.put_module(files_of(model, "tag"), "tag", "tagging", tmp_path, TAGGER_DRIVER)
    sentences = sentences_of(3)
    for output in modules.run_module(tmp_path, "tagging", {"texts": TEXTS, "sentences": sentences, "large": LARGE}):
        for inputs, answers in ((TEXTS, output["texts"]), (sentences, output["sentences"])):
            for text, words, sentence in zip(inputs, answers, model.predict(inputs, confidence=True), strict=True):
                assert [(word["text"], word["label"]) for word in words] == [
                    (word.text, word.label) for word in sentence
                ]
                assert_allclose(
                    [word["probability"] for word in words], [word.confidence for word in sentence], atol=1e-5
                )
                if isinstance(text, str):
                    units = text.encode("utf-16-le")
                    places = [units[2 * word["begin"] : 2 * word["end"]].decode("utf-16-le") for word in words]
                    assert places == [word["text"] for word in words]
        wanted = [
            [(name, start, end - 1) for name, start, end in spans_of(sentence.labels)]
            for sentence in model.predict(sentences)
        ]
        assert [[(s["label"], s["first"], s["last"]) for s in spans] for spans in output["spans"]] == wanted
        assert any(first != last for spans in wanted for _, first, last in spans)
        one, other = output["lone"]
        assert [word["label"] for word in one] == [word["label"] for word in other]
        assert output["large"] == len(model.sentence(LARGE, model.format("text")).words)
        assert output["failures"] == [
            "the texts are not an array", "a text is neither a string nor an array of words",
            "the text is not a string", "a sentence is too long",
        ]  # fmt: skip


@modules.in_a_browser
def test_the_page_of_a_tagger_shows_the_labels_of_ensue(dark: bool, with_page: Callable[[str], Path]) -> None:
    folder = with_page("tag-lstm-crf")
    model = ensue.load(folder / "tag-lstm-crf")
    with modules.opened(folder, dark=dark) as browser:
        browser.until("document.querySelectorAll('#shown [data-place]').length > 9")
        text = "Anna <b>Novak</b>\nsees 日本."
        browser.write("#text", text)
        words = [word for sentence in model.predict(text.split("\n"), confidence=True) for word in sentence]
        browser.until(f"document.querySelectorAll('#shown [data-place]').length === {len(words)}")
        assert browser.texts("#shown [data-place]") == [word.text for word in words]
        browser.point('[data-place="1"]')
        browser.find("#shown").send_keys("\ue014")  # the arrow to the right
        word = words[2]
        assert browser.text("#told") == f"{word.text}: {word.label}, P {word.confidence:.4f}"
        browser.run("document.getElementById('numbers').click()")
        assert len(browser.texts("#shown small")) == len(words)


CLASSIFIER_DRIVER = """
import { readFileSync } from "node:fs";
import { load } from "./topic.js";
const input = JSON.parse(readFileSync(0, "utf-8")), output = {};
for (const simd of [true, false]) {
  const model = await load({ simd }), one = input.texts[0], failures = [
    () => model.predict("a"), () => model.predict([3]), () => model.predict([model.isPair ? "a" : ["a", "b"]]),
    () => model.predict([["a"]]), () => model.predict([["a", 3]]), () => model.predict([one], { atLeast: 2 }),
    () => model.predict([one], { atleast: 0 }), () => model.predict([model.isPair ? ["", huge] : huge]),
  ].map(call => { try { return `no error: ${call()}`; } catch (error) { return error.message; } });
  const lone = ["a \\ud800 sea", "a \\ufffd sea"].map(text => model.predict([model.isPair ? [text, "sea"] : text])[0]);
  output[simd] = {
    simd: model.simd, labels: model.labels, is: [model.isPair, model.isMultiple], failures, lone,
    answers: model.predict(input.texts), sure: model.predict(input.texts.slice(0, 8), { atLeast: 0.5 }),
    members: [...Object.getOwnPropertyNames(Object.getPrototypeOf(model)), ...Object.keys(model)],
  };
}
console.log(JSON.stringify(output));
""".replace("huge", '"a".repeat(2 ** 24)')


@modules.in_node
@pytest.mark.parametrize("kind", ["several", "pair_of_layers"])
def test_a_module_has_the_labels_and_probabilities_of_ensue(kind: str, tmp_path: Path) -> None:
    model = classifier(**CLASSIFIERS[kind])
    modules.put_module(files_of(model, "topic"), "topic", "classes", tmp_path, CLASSIFIER_DRIVER)
    odd = ["", " ", "\u0130 e\u0301 \U0001f600", "\x00\ufeff", " ".join(SIGNS), "a'b " * 40, "x" * 9000, "a " * 999]
    texts: list[Any] = [*odd, "the sea was calm " * (60_000 if model.num_texts == 1 else 10_000)]  # 1 MB; 170 KB
    if model.num_texts == 2:
        texts = [(text, odd[k % 7]) for k, text in enumerate(texts)]
    predicted, sure = model.predict(texts), model.predict(texts[:8], at_least=0.5)
    for output in modules.run_module(tmp_path, "classes", {"texts": texts}):
        assert output["labels"] == list(model.labels.names)
        assert output["is"] == [model.num_texts == 2, model.labels.multiple]
        for answers, expected in ((output["answers"], predicted), (output["sure"], sure)):
            for answer, wanted in zip(answers, expected, strict=True):
                assert_allclose(answer["probabilities"], list(wanted.probabilities.values()), atol=1e-5)
                assert (answer["labels"], answer["label"] or "") == (list(wanted.labels), wanted.label)
                assert answer["probability"] == pytest.approx(wanted.probability, abs=1e-5)
        assert [answer["words"] for answer in output["answers"]][:1] == [0]
        assert output["lone"][0] == output["lone"][1]
        is_pair = model.num_texts == 2
        kinds = "the 2 texts are not an array" if is_pair else "the text is not a string"
        one = "expected 2 texts, found 1" if is_pair else kinds
        assert output["failures"] == [
            "the texts are not an array", kinds, kinds, one,
            "the text is not a string", "atLeast = 2 is not a number from 0 to 1", 'no option "atleast"',
            "a text is too long",
        ]  # fmt: skip


@modules.in_a_browser
def test_the_page_of_a_classifier_shows_the_labels_of_ensue(dark: bool, with_page: Callable[[str], Path]) -> None:
    folder = with_page("classify-bag")
    model = ensue.load(folder / "classify-bag")
    with modules.opened(folder, dark=dark) as browser:
        browser.until("document.querySelectorAll('#shown [data-place]').length === 2")
        lines = ["salt <b>and</b> the oven", "the team had a coach", "日本"]
        browser.write("#text", "\n\n".join(lines))
        browser.until(f"document.getElementById('told').textContent === '{lines[2]}'")
        answers = model.predict(lines)
        rows = [
            [", ".join(one.labels), f"{one.probability:.4f}", text] for one, text in zip(answers, lines, strict=True)
        ]
        assert browser.texts("#shown td") == [cell for row in rows for cell in row]
        browser.find("#shown").send_keys("\ue012")  # the arrow to the left
        ranked = sorted(answers[1].probabilities.items(), key=lambda item: -item[1])
        assert browser.text("#told") == lines[1]
        assert browser.texts("#bars th") == [name for name, _ in ranked]
        assert browser.texts("#bars .number") == [f"{share:.4f}" for _, share in ranked]
        assert browser.texts("#bars .is th") == list(answers[1].labels)
        widths = browser.run(
            "return [...document.querySelectorAll('#bars .share')].map(bar => parseFloat(bar.style.width))"
        )
        assert_allclose(widths, [100 * share for _, share in ranked], atol=1e-3)
        browser.write("#text", "\ue003")  # the key that deletes
        browser.until("document.getElementById('bars').hidden")
        assert browser.text("#told") == "Type a text."


TRANSDUCER_DRIVER = """
import { readFileSync } from "node:fs";
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";
import { load } from "./say.js";
if (!isMainThread) {
  parentPort.postMessage((await load()).predict(workerData));
} else {
  const input = JSON.parse(readFileSync(0, "utf-8")), output = {};
  for (const simd of [true, false]) {
    const model = await load({ simd }), one = input.sources[0], failures = [
      () => model.predict("a"), () => model.predict(["a"]), () => model.predict([["a"]]),
      () => model.predict([["a", 3]]), () => model.predict([one], { beam: 2 }),
      () => model.predict([one], { beams: 1.5 }), () => model.predict([one], { beams: 33 }),
      () => model.predict([one], { lengthPenalty: "1" }),
      () => model.predict([["a".repeat(2 ** 20), "b"]]),
    ].map(call => { try { return `no error: ${call()}`; } catch (error) { return error.message; } });
    output[simd] = {
      simd: model.simd, texts: model.numTexts, search: model.search, failures,
      answers: input.searches.map(search => model.predict(input.sources, search)),
      members: [...Object.getOwnPropertyNames(Object.getPrototypeOf(model)), ...Object.keys(model)],
    };
  }
  const worker = new Worker(new URL(import.meta.url), { workerData: input.sources });
  worker.on("message", answers => console.log(JSON.stringify({ ...output, worker: answers })));
}
"""


@modules.in_node
@pytest.mark.filterwarnings("ignore::ensue.notices.Notice")  # of texts that are empty
@pytest.mark.parametrize("kind", ["bilinear", "subwords"])
def test_a_module_has_the_answers_and_scores_of_ensue(kind: str, tmp_path: Path) -> None:
    model = transducer(**TRANSDUCERS[kind])
    modules.put_module(files_of(model, "say"), "say", "transducing", tmp_path, TRANSDUCER_DRIVER)
    sources = [*zip(LEMMAS * 5, ["V;PST", "V|3 SG", ""] * 10, strict=True), ("", ""), ("b" * 600, "V")]
    changes: list[dict[str, Any]] = [
        {}, {"width": 1}, {"width": 9, "n_best": 4, "length_penalty": 0.3, "max_tokens": 40, "min_tokens": 2},
    ]  # fmt: skip
    keys = {"width": "beams", "n_best": "nBest", "length_penalty": "lengthPenalty", "max_tokens": "maxTokens"}
    searches = [{keys.get(key, "minTokens"): value for key, value in change.items()} for change in changes]
    wanted = [model.with_search(**change).predict(sources) for change in changes]
    for output in modules.run_module(tmp_path, "transducing", {"sources": sources, "searches": searches}):
        assert output["texts"] == 2
        assert (output["search"]["beams"], output["search"]["lengthPenalty"]) == (model.search.width, 0.7)
        for answers, expected in zip([*output["answers"], output["worker"]], [*wanted, wanted[0]], strict=True):
            for answer, best in zip(answers, expected, strict=True):
                for mine, theirs in zip([answer, *answer["others"]], [best, *best.others], strict=True):
                    assert (mine["text"], mine["isComplete"]) == (theirs.text, theirs.is_complete)
                    numbers = [mine["score"], mine["logProbability"], mine["probability"]]
                    expected_numbers = [theirs.score, theirs.log_probability, math.exp(theirs.log_probability)]
                    assert_allclose(numbers, expected_numbers, rtol=1e-5, atol=1e-5)
        assert output["failures"] == [
            "the sources are not an array", "the 2 texts are not an array", "expected 2 texts, found 1",
            "the text is not a string", 'no option "beam"', "beams = 1.5 is not a whole number from 0",
            "an argument is out of range", "lengthPenalty = 1 is not a number",
            "a text is too long, or maxTokens too large",
        ]  # fmt: skip


@modules.in_a_browser
def test_an_encoder_decoder_page_shows_the_answers_of_ensue(dark: bool, with_page: Callable[[str], Path]) -> None:
    folder = with_page("transduce-lstm")
    model = ensue.load(folder / "transduce-lstm")
    with modules.opened(folder, dark=dark) as browser:
        browser.until("document.querySelectorAll('#answers tbody tr').length === 5")
        for field, lines in (("#text1", "go\n<b>see</b>\n"), ("#text2", "V;PST\nV;PST")):
            browser.write(field, lines)
        browser.until("document.querySelectorAll('#shown td').length === 4")
        answers = model.with_search(n_best=5).predict([("go", "V;PST"), ("<b>see</b>", "V;PST")])
        browser.until(f"document.querySelectorAll('#shown td')[3].textContent === {json.dumps(answers[1].text)}")
        assert browser.texts("#shown td")[::2] == ["go | V;PST", "<b>see</b> | V;PST"]
        browser.find("#shown").send_keys("\ue012")  # the arrow to the left
        assert browser.text("#told") == "go | V;PST"
        rows = [(best.text, f"{math.exp(best.log_probability):.4f}") for best in (answers[0], *answers[0].others)]
        texts = browser.run("return [...document.querySelectorAll('#answers tbody td')].map(cell => cell.textContent)")
        assert [(text.removesuffix(" …"), share) for text, share in zip(texts[::3], texts[1::3], strict=True)] == rows
        browser.run("document.getElementById('text1').value = 'a'.repeat(2001)")
        browser.find("#text2").send_keys("x")
        browser.until("!document.getElementById('wrong').hidden")
        assert "line 1 has 2,006 characters, and the page reads lines of at most 2,000" in browser.text("#wrong")


def shows(browser: Browser, text: str) -> None:
    """Type a text, and wait until the page shows it in colors."""
    browser.write("#text", text)
    count = sum(2 if character == "\n" else 1 for character in text)
    browser.until(f"document.getElementById('shown').textContent.length === {count}")


@modules.in_a_browser
def test_the_page_of_a_language_model_works_without_a_server(dark: bool, with_page: Callable[[str], Path]) -> None:
    folder = with_page("char-lstm")
    model = ensue.load(folder / "char-lstm")
    with modules.opened(folder, dark=dark) as browser:
        browser.until("!document.getElementById('write').disabled")
        browser.until("document.querySelectorAll('#shown .w').length > 9")
        text = "The sea\nwas é calm."
        shows(browser, text)
        expected = [score.nats for score in model.score(text)]
        each = sum(expected) / len(expected)
        assert f"{each:.3f} nats per character" in browser.texts("#facts li")
        browser.point("#shown .w:nth-child(5)")
        assert browser.text("#told").startswith(f"s: surprisal {expected[4]:.3f} nats")
        browser.find("#shown").send_keys("\ue014")  # the arrow to the right
        assert browser.text("#told").startswith(f"e: surprisal {expected[5]:.3f} nats")
        assert browser.texts("#shown .unknown") == ["é"]
        browser.choose("#unit", "word")
        words = browser.texts("#shown .w")
        assert words == ["The", " sea", "↵\nwas", " é", " calm."]
        browser.point("#shown .w:nth-child(2)")
        assert browser.text("#told").startswith(f"␣sea: surprisal {sum(expected[3:7]):.3f} nats")
        for field, value in (("seed", "3"), ("length", "150"), ("temperature", "0.9")):
            browser.run("document.getElementById(arguments[0]).value = arguments[1]", field, value)
        browser.find("#length").send_keys("\n")
        browser.until("document.getElementById('speed').textContent.startsWith('150 characters')")
        some = "".join(model.generate(text, max_tokens=150, seed=3, temperature=0.9))
        assert browser.text("#written") == text + some
        browser.run("document.getElementById('length').value = 1000000")
        browser.run("document.getElementById('write').click()")
        browser.until("document.getElementById('written').textContent.length > 3000")
        browser.run("document.getElementById('stop').click()")
        browser.until("!document.getElementById('write').disabled")
        assert 3000 < len(browser.text("#written")) < 900_000
        color = "getComputedStyle(document.body).backgroundColor"
        assert (sum(map(int, re.findall(r"\d+", browser.run(f"return {color}"))[:3])) < 200) == dark
