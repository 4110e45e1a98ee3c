"""Small untrained models with words, and a page as a tree."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ensue.data.examples import Pair, PairLayout
from ensue.models.build_text import build_classifier, build_tagger
from ensue.recipe import validate_recipe
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.masked_language_modeling.model import MaskedLanguageModelParts
from ensue.tasks.masked_language_modeling.pipeline import MaskedLanguagePipeline
from ensue.tasks.sequence_to_sequence.model import EncoderDecoderParts
from ensue.tasks.sequence_to_sequence.pipeline import SequencePipeline
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.text.labels import Classes, Labels
from ensue.text.lexicon import Lexicon
from ensue.text.tokenizers import train_tokenizer
from layer_tables import layer_tables
from training.tiny_masked import masked_recipe, paragraphs
from training.tiny_pairs import TRANSLATED, pair_recipe

WORDS = dict.fromkeys(
    ["the", "Sea", "was", "calm", "calmly", "Ann", "Lee", "of", "London", "saw", "23", "seas", "."], 4
)
SPANS = Labels(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"], scheme="bio", tag_scheme="iobes")
PLAIN = Labels(["DET", "NOUN", "VERB"], scheme=None, tag_scheme=None)
FEATURES = {"d_words": 6, "affixes": 2, "d_affix": 3, "d_shape": 2}
LSTM = {"kind": "lstm", "d_model": 5}
TRANSFORMER = {"kind": "transformer", "d_model": 8, "num_heads": 2, "num_layers": 2, "context": 64}


def document(task: str, features: dict[str, Any], model: dict[str, Any], head: dict[str, Any]) -> dict[str, Any]:
    table = {"task": task, "data": {"train": "x"}, "features": features, "head": head, **layer_tables(model)}
    return table | {"train": {"steps": 1}}


def lexicon_of(features: dict[str, Any], columns: dict[str, list[str]], vectors: list[str] | None = None) -> Lexicon:
    return Lexicon.train(
        WORDS, columns=columns, characters=features.get("characters", "none") != "none",
        longest_affix=features.get("affixes", 0), shapes=bool(features.get("d_shape", 0)), vectors=vectors,
    )  # fmt: skip


def roughened(model: nn.Module) -> None:
    """Add noise to weights, so that no numbers are equal by chance."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "transitions" not in name or parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.5)


def tagger(
    *, features: dict[str, Any] = FEATURES, model: dict[str, Any] = LSTM, head: str = "crf", labels: Labels = SPANS,
    columns: dict[str, list[str]] | None = None, vectors: list[str] | None = None,
) -> LabelingPipeline:  # fmt: skip
    table = features | ({"columns": list(columns)} if columns else {})
    recipe = validate_recipe(document("labeling", table, model, {"kind": head}), where="small")
    assert isinstance(recipe, LabelingRecipe)
    lexicon = lexicon_of(features, columns or {}, vectors)
    torch.manual_seed(0)
    pretrained = None if vectors is None else torch.randn(len(vectors) + 1, 4)
    built = build_tagger(
        recipe.features, recipe.encoder, recipe.head, directions=recipe.directions, lexicon=lexicon, labels=labels,
        pretrained=pretrained,
    )  # fmt: skip
    roughened(built)
    return LabelingPipeline(built, lexicon, labels, recipe=recipe, run="runs/small")


def classifier(
    *, features: dict[str, Any] = FEATURES, model: dict[str, Any] = LSTM, pooling: tuple[str, ...] = ("mean", "max"),
    pair: bool = False, classes: Classes | None = None, data: dict[str, Any] | None = None, ngrams: int = 0,
) -> ClassificationPipeline:  # fmt: skip
    table = document("classification", features, model, {"pooling": list(pooling), "ngrams": ngrams})
    recipe = validate_recipe(table | {"data": {"train": "x", **(data or {})}}, where="small")
    assert isinstance(recipe, ClassificationRecipe)
    lexicon = lexicon_of(features, {})
    classes = classes or Classes(["good", "bad", "so-so"])
    torch.manual_seed(0)
    built = build_classifier(
        recipe.features, recipe.encoder, recipe.head, directions=recipe.directions, lexicon=lexicon,
        num_labels=len(classes), pair=pair, multiple=classes.multiple, segment=recipe.data.segment_tokens,
    )  # fmt: skip
    roughened(built)
    return ClassificationPipeline(built, lexicon, classes, recipe=recipe)


@dataclass
class Node:
    """An element of a page, whose `children` are nodes and strings."""

    tag: str
    attributes: dict[str, str | None]
    children: list["Node | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, tag: str = "", kind: str = "") -> Iterator["Node"]:
        """Yield the descendants of a tag and class, in order."""
        for child in self.children:
            if isinstance(child, Node):
                if tag in ("", child.tag) and (not kind or kind in (child.attributes.get("class") or "").split()):
                    yield child
                yield from child.all(tag, kind)

    def section(self, heading: str) -> "Node":
        return next(section for section in self.all("section") if next(section.all("h2")).text.startswith(heading))

    def programs(self) -> list["Node"]:
        """Return scripts that are executed. Others contain numbers."""
        return [node for node in self.all("script") if "type" not in node.attributes]

    def titles(self) -> list[str]:
        """Return the texts shown under the pointer."""
        return [
            node.text if node.tag == "title" else node.attributes["title"] or ""
            for node in self.all()
            if node.tag == "title" or "title" in node.attributes
        ]


class _Tree(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Node("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs))
        assert len(node.attributes) == len(attrs), f"an attribute twice in {tag}"
        self.open[-1].children.append(node)
        if tag not in ("meta", "input"):  # these have no end
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag, f"{tag} ends what it has not begun"

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parsed(page: str) -> Node:
    """Return the page as a tree, or raise AssertionError if it is not well-formed."""
    tree = _Tree()
    tree.feed(page)
    tree.close()
    (root,) = tree.open
    return root


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def translator(**tables: Any) -> SequencePipeline:
    """Return an untrained model with words of `tiny_pairs`. The keywords replace tables of its recipe."""
    recipe = pair_recipe(Path("x"), **{"tokenizer": {"kind": "words", "min_count": 2}, **tables})
    known = [Pair((source,), (target,)) for source, target in TRANSLATED.items()]
    coder = PairCoder.train(known * 2, recipe.tokenizer, None, copies=recipe.head.copying)
    torch.manual_seed(0)
    model = EncoderDecoderParts(coder).build(recipe)
    roughened(model)
    return SequencePipeline(model, coder, recipe=recipe, layout=PairLayout("tsv"), ratio=1.5, run="runs/small")


def masked(**tables: Any) -> MaskedLanguagePipeline:
    """Return an untrained masked language model with WordPiece, or BPE, of a short text."""
    recipe = masked_recipe(Path("x"), **tables)
    tokenizer = train_tokenizer(recipe.tokenizer.kind, [paragraphs(12)], max_size=300, lowercase=True)
    parts = MaskedLanguageModelParts(tokenizer)
    torch.manual_seed(0)
    model = parts.build(recipe)
    roughened(model)
    return MaskedLanguagePipeline(model, parts.coder, recipe, run="runs/small")


HARD = [
    "<script>alert(1)</script> & \"quoted\" 'too' <b> &amp; ]]> -->",
    "שלום עולם \u202eabc def",
    "👩\u200d👩\u200d👧 🏳️\u200d🌈 e\u0301te\u0301 日本語 한국",
    "a\x00b\x07 \ud800 \uffff ok",
]
