"""A format for models that split running text into sentences and words by labels of characters.

A "sentence" of this format is a paragraph, and its "words" are characters. The text of a treebank is determined by the
forms, by `SpaceAfter=No`, and by the comments `# newpar` and `# newdoc`. The label of a character is

- `token` at the end of a token, and `sentence` at the end of the last token of a sentence. If a multiword token is not
  the concatenation of its words (`du`: de, le), the label also has the edit script of each word;
- `word` at the end of a word inside a multiword token (`do|n't`);
- `blank` for a blank inside a token;
- `inside` for all other characters.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

from ensue.data.detection.signs import is_conllu
from ensue.data.lines import Lines, is_blank
from ensue.data.records.record import SAMPLE_ROWS
from ensue.data.sentences.conllu import Conllu, Piece, pieces
from ensue.data.sentences.sentence import Format, Sentence, SourceText, Surface
from ensue.text.edit_scripts import apply_script, edit_script

INSIDE, BLANK, WORD, TOKEN, SENTENCE = "inside", "blank", "word", "token", "sentence"
MAX_CHARACTERS, MAX_TREEBANK_CHARACTERS = 2_000, 600
"""The maximum length of a paragraph in plain text and in treebanks. Longer paragraphs slow training, and are split."""
_NEW_PARAGRAPH = re.compile(r"#\s*new(?:par|doc)(?!\S)")
_WITHOUT_BLANKS = re.compile(r"\S+")
_ENDS, _ENDS_WITHOUT_BLANK = ".!?…。！？", "。！？"


class CutToken(NamedTuple):
    """A token, its offsets in the text, and its words. A multiword token has several words."""

    form: str
    start: int
    end: int
    words: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the token as a JSON object."""
        return {"text": self.form, "start": self.start, "end": self.end, "words": list(self.words)}


class CutSentence(NamedTuple):
    """A sentence, and its tokens with offsets in the sentence. `blank` is whether a blank or line end follows."""

    text: str
    tokens: tuple[CutToken, ...]
    blank: bool

    @property
    def words(self) -> tuple[str, ...]:
        """The words of all tokens."""
        return tuple([word for token in self.tokens for word in token.words])

    def as_json(self) -> dict[str, Any]:
        """Return the sentence as a JSON object."""
        return {"text": self.text, "tokens": [token.as_json() for token in self.tokens]}

    def conllu(self) -> str:
        """Return the sentence in CoNLL-U, with `_` in all unknown columns."""
        rows, number = [f"# text = {self.text}\n"], 1
        following_starts = [*(token.start for token in self.tokens[1:]), len(self.text) + self.blank]
        for token, next_start in zip(self.tokens, following_starts, strict=True):
            misc, last = "_" if next_start > token.end else "SpaceAfter=No", number + len(token.words) - 1
            if last > number:
                rows.append(f"{number}-{last}\t{token.form}" + "\t_" * 7 + f"\t{misc}\n")
                misc = "_"
            for word in token.words:
                rows.append(f"{number}\t{word}" + "\t_" * 7 + f"\t{misc}\n")
                number += 1
        return "".join([*rows, "\n"])


class RunningText(Format):
    """The format of running text: a treebank in CoNLL-U, or plain text with blank lines between paragraphs.

    In plain text, a run of white space is read as one blank.
    """

    name = "conllu-text"
    default_words = "character"
    default_column = "cut"

    def read(self, lines: Lines) -> Iterator[Sentence]:
        """Yield the paragraphs. Raises DataError like `Conllu`."""
        if is_conllu(lines.head(SAMPLE_ROWS)):
            return _paragraphs(Conllu().read(lines), max_characters=MAX_TREEBANK_CHARACTERS)
        return _plain_paragraphs(lines, lines.name)

    def labels(self, sentence: Sentence, column: str | None = None) -> tuple[str, ...]:
        """Return the labels of a paragraph of a treebank. Raises DataError (file:line) for plain text."""
        if not sentence.columns:
            raise sentence.error("this is plain text, which has no labels; expected a treebank in CoNLL-U")
        return sentence.column(column or self.default_column, "labels")

    def write(self, sentence: Sentence, labels: Sequence[str], column: str | None = None) -> str:
        """Return the sentences that the labels define, in CoNLL-U."""
        return "".join(result.conllu() for result in cut_sentences(sentence, labels))

    def missing_end(self, text: str) -> str:
        return ""  # the written lines are complete

    def surface(self, sentence: Sentence) -> Surface:
        """Return the text of the paragraph, whose words are characters."""
        return Surface.of(sentence.words, [False] * len(sentence.words))


def cut_sentences(sentence: Sentence, labels: Sequence[str]) -> Iterator[CutSentence]:
    """Split a paragraph into sentences by the labels of its characters."""
    text, source = "".join(sentence.words), sentence.source.text
    result = cut_text(text, labels)
    ends = [*(tokens[0].start for tokens in result[1:]), len(text) + source[-1:].isspace()]
    for tokens, end in zip(result, ends, strict=True):
        first, last = tokens[0].start, tokens[-1].end
        placed = [CutToken(form, start - first, stop - first, words) for form, start, stop, words in tokens]
        yield CutSentence(text[first:last], tuple(placed), end > last)


def cut_text(text: str, labels: Sequence[str]) -> list[list[CutToken]]:
    """Split a text into sentences of tokens by the labels of its characters.

    A token also ends before a blank, unless the blank has the label `blank`.
    """
    visible = "".join(["_" if label == BLANK else character for character, label in zip(text, labels, strict=True)])
    last = {span.end() - 1 for span in _WITHOUT_BLANKS.finditer(visible)}
    ends = [index for index, label in enumerate(labels) if label not in (INSIDE, BLANK) and not text[index].isspace()]
    sentences: list[list[CutToken]] = [[]]
    end, cuts = 0, list[int]()
    for index in sorted(last.union(ends)):
        kind, _, scripts = labels[index].partition(" ")
        if kind == WORD and index not in last:
            cuts.append(index + 1)
            continue
        form = text[end : index + 1].lstrip()
        start, end = index + 1 - len(form), index + 1
        words: tuple[str, ...] = (form,)
        if scripts:
            words = tuple([apply_script(script, form) for script in scripts.split(" ")])
        elif cuts:
            words = tuple([text[first:final] for first, final in pairwise([start, *cuts, end])])
        if form:  # a blank with the label `blank` after a token has no form
            sentences[-1].append(CutToken(form, start, end, words))
        cuts = []
        if kind == SENTENCE:
            sentences.append([])
    return [tokens for tokens in sentences if tokens]


def running_text(sentences: Sequence[Sentence]) -> str:
    """Return the text of a treebank, with a blank line between paragraphs."""
    return "\n\n".join("".join(paragraph.words) for paragraph in _paragraphs(sentences)) + "\n"


def _paragraphs(sentences: Iterable[Sentence], *, max_characters: float = math.inf) -> Iterator[Sentence]:
    """Join the sentences of a treebank to paragraphs, and divide paragraphs at sentences if they are too long."""
    pending: list[Sentence] = []
    size = number = 0
    for sentence in sentences:
        text = sentence.source.sentence_text
        length = sum(len(token.form) + token.blank for token in pieces(text))
        opens = any(map(_NEW_PARAGRAPH.match, text.split("\n")))
        if pending and (opens or size + length > max_characters):
            yield _paragraph(pending, number)
            pending, size, number = [], 0, number + opens
        pending.append(sentence)
        size += length
    if pending:
        yield _paragraph(pending, number)


def _paragraph(sentences: list[Sentence], number: int) -> Sentence:
    text: list[str] = []
    labels: list[str] = []
    for sentence in sentences:
        result = list(pieces(sentence.source.sentence_text))
        for index, token in enumerate(result, 1):
            text += token.form
            labels += _token_labels(token, SENTENCE if index == len(result) else TOKEN)
            if token.blank:
                text.append(" ")
                labels.append(INSIDE)
    if text[-1] == " ":
        del text[-1], labels[-1]
    first = sentences[0]
    source = SourceText(first.source.name, "".join(text) + "\n")
    return Sentence(tuple(text), {RunningText.default_column: tuple(labels)}, first.line, source, number)


def _token_labels(token: Piece, end: str) -> Iterator[str]:
    ends = set[int]()
    if len(token.words) > 1 and "".join(token.words) == token.form:
        ends.update(accumulate(map(len, token.words[:-1])))
    elif len(token.words) > 1:
        end = " ".join([end, *(edit_script(token.form, word) for word in token.words)])
    for index, character in enumerate(token.form[:-1], 1):
        yield WORD if index in ends else BLANK if character.isspace() else INSIDE
    yield end


def _plain_paragraphs(lines: Iterable[tuple[int, str]], name: str) -> Iterator[Sentence]:
    text, number, first = "", 0, 1
    for index, line in chain(lines, [(0, "")]):
        words = " ".join(line.split())
        if words:
            *chunks, text = _divide_text(f"{text} {words}" if text else words)
        else:
            chunks = [text + "\n"] if text and is_blank(line) else []
        for chunk in chunks:
            yield Sentence(tuple(chunk.rstrip()), {}, first, SourceText(name, chunk), number)
        if is_blank(line):
            number, first, text = number + bool(text), first if not text else index + 1, ""


def _divide_text(text: str) -> Iterator[str]:
    """Divide a text at the last end of a sentence, or else at the last blank, within the maximum length."""
    start = 0
    while len(text) - start > MAX_CHARACTERS:
        piece = text[start : start + MAX_CHARACTERS + 1]
        blanks = [index for index in range(1, MAX_CHARACTERS) if piece[index] == " "]
        ends = [index for index in blanks if piece[index - 1] in _ENDS]
        ends += [index for index in range(1, MAX_CHARACTERS) if piece[index - 1] in _ENDS_WITHOUT_BLANK]
        cut = max(ends) if ends else blanks[-1] if blanks else MAX_CHARACTERS
        yield piece[:cut] + (" " if piece[cut] == " " else "")
        start += cut + (piece[cut] == " ")
    yield text[start:]
