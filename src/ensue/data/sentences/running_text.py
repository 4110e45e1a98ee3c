"""The running text of a treebank, character by character, with labels that cut it into words and sentences.

A paragraph is a sentence of this format, and its characters are the words. Its text follows from the forms, from
`SpaceAfter=No`, and from the comments `# newpar` and `# newdoc`. The label of a character says what ends with it: a
`token`, a `sentence` and its last token, or a `word` within a multiword token (`do|n't`). If the words do not spell
their token, the label also has the edit script of each word (`du`: de, le). A blank inside a token is a `blank`;
everything else is `inside`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

from ensue.data.detection.signs import is_conllu
from ensue.data.lines import Lines, is_blank
from ensue.data.records.record import SAMPLE_ROWS
from ensue.data.sentences.conllu import Conllu, Piece, opens_paragraph, pieces
from ensue.data.sentences.sentence import Format, Sentence, SourceLines, Surface, joined
from ensue.text.edit_scripts import applied, edit_script

INSIDE, BLANK, WORD, TOKEN, SENTENCE = "inside", "blank", "word", "token", "sentence"
LONGEST, LONGEST_OF_TREEBANK = 2_000, 600
"""The most characters that are read in one piece, if a text can be cut there. Long rows are slow in training."""
_ENDS = ".!?…。！？"
_END_WITHOUT_BLANK = "。！？"


class CutToken(NamedTuple):
    """A token, its place in the text, and its words: itself, or several of a multiword token."""

    form: str
    start: int
    end: int
    words: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The token as JSON values."""
        return {"text": self.form, "start": self.start, "end": self.end, "words": list(self.words)}


class CutSentence(NamedTuple):
    """A sentence and its tokens, whose places are counted in it. `blank`: whether a blank or a line end follows it."""

    text: str
    tokens: tuple[CutToken, ...]
    blank: bool

    def as_json(self) -> dict[str, Any]:
        """The sentence as JSON values."""
        return {"text": self.text, "tokens": [token.as_json() for token in self.tokens]}

    def conllu(self) -> str:
        """The sentence in CoNLL-U, with `_` for all that is not known."""
        rows, number = [f"# text = {self.text}\n"], 1
        follows = [*(token.start for token in self.tokens[1:]), len(self.text) + self.blank]
        for token, behind in zip(self.tokens, follows, strict=True):
            misc, last = "_" if behind > token.end else "SpaceAfter=No", number + len(token.words) - 1
            if last > number:
                rows.append(f"{number}-{last}\t{token.form}" + "\t_" * 7 + f"\t{misc}\n")
                misc = "_"
            for word in token.words:
                rows.append(f"{number}\t{word}" + "\t_" * 7 + f"\t{misc}\n")
                number += 1
        return "".join([*rows, "\n"])


class RunningText(Format):
    """Reads treebanks in CoNLL-U, and plain text with blank lines between paragraphs. White space counts as a blank."""

    name = "conllu-text"
    default_words = "character"
    default_column = "cut"

    def read(self, lines: Lines) -> Iterator[Sentence]:
        """Raises DataError as CoNLL-U does."""
        if is_conllu(lines.head(SAMPLE_ROWS)):
            yield from _treebank(lines)
            return
        yield from _plain(lines, lines.name)

    def labels(self, sentence: Sentence, column: str | None = None) -> tuple[str, ...]:
        """The labels that follow from a treebank. Raises DataError (file:line) for plain text."""
        if not sentence.columns:
            raise sentence.error(
                "this is plain text; what sentences and words are is learned from a treebank in CoNLL-U"
            )
        return sentence.column(column or self.default_column)

    def write(self, sentence: Sentence, labels: Sequence[str], column: str | None = None) -> str:
        """The sentences of the paragraph in CoNLL-U."""
        return "".join(found.conllu() for found in cut_sentences(sentence, labels))

    def missing_end(self, text: str) -> str:
        return ""  # what is written is not the file's own text

    def surface(self, sentence: Sentence) -> Surface:
        """The paragraph."""
        return joined(sentence.words, [False] * len(sentence.words))


def cut_sentences(sentence: Sentence, labels: Sequence[str]) -> Iterator[CutSentence]:
    """The sentences of a paragraph, or a part of it, by the labels of its characters."""
    text, source = "".join(sentence.words), sentence.source.text
    found = cut_text(text, labels)
    ends = [*(tokens[0].start for tokens in found[1:]), len(text) + source[-1:].isspace()]
    for tokens, end in zip(found, ends, strict=True):
        first, last = tokens[0].start, tokens[-1].end
        placed = [token._replace(start=token.start - first, end=token.end - first) for token in tokens]
        yield CutSentence(text[first:last], tuple(placed), end > last)


def cut_text(text: str, labels: Sequence[str]) -> list[list[CutToken]]:
    """The tokens of a text's sentences by the labels of its characters. A token ends before a blank."""
    sentences: list[list[CutToken]] = [[]]
    start, cuts = -1, list[int]()
    for place, (character, label) in enumerate(zip(text, labels, strict=True)):
        if start < 0 and character.isspace():
            continue
        if start < 0:
            start, cuts = place, []
        kind, _, scripts = label.partition(" ")
        follows = text[place + 1 : place + 2]
        is_end = kind in (TOKEN, SENTENCE) or not follows or (follows.isspace() and labels[place + 1] != BLANK)
        if not is_end:
            cuts += [place + 1] if kind == WORD else []
            continue
        form = text[start : place + 1]
        words = tuple(form[first - start : last - start] for first, last in pairwise([start, *cuts, place + 1]))
        if scripts:
            words = tuple(applied(script, form) for script in scripts.split(" "))
        sentences[-1].append(CutToken(form, start, place + 1, words))
        start = -1
        if kind == SENTENCE:
            sentences.append([])
    return [tokens for tokens in sentences if tokens]


def running_text(sentences: Sequence[Sentence]) -> str:
    """The text of a treebank, with a blank line between paragraphs."""
    found: list[str] = []
    for paragraph in _paragraphs(sentences, longest=None):
        found.append("".join(paragraph.words))
    return "\n\n".join(found) + "\n"


def _treebank(lines: Lines) -> Iterator[Sentence]:
    yield from _paragraphs(Conllu().read(lines), longest=LONGEST_OF_TREEBANK)


def _paragraphs(sentences: Iterable[Sentence], *, longest: int | None) -> Iterator[Sentence]:
    """The paragraphs of a treebank, in parts of at most `longest` characters that end with a sentence."""
    gathered: list[Sentence] = []
    size = number = 0
    for sentence in sentences:
        text = sentence.source.text
        length = sum(len(piece.form) + piece.blank for piece in pieces(text))
        opens = opens_paragraph(text)
        if gathered and (opens or (longest is not None and size + length > longest)):
            yield _paragraph(gathered, number)
            gathered, size, number = [], 0, number + opens
        gathered.append(sentence)
        size += length
    if gathered:
        yield _paragraph(gathered, number)


def _paragraph(sentences: list[Sentence], number: int) -> Sentence:
    """The characters of some sentences of a treebank, and their labels."""
    text: list[str] = []
    labels: list[str] = []
    for sentence in sentences:
        found = list(pieces(sentence.source.text))
        for place, piece in enumerate(found, 1):
            text += piece.form
            labels += _labels(piece, SENTENCE if place == len(found) else TOKEN)
            if piece.blank:
                text.append(" ")
                labels.append(INSIDE)
    if text[-1] == " ":
        del text[-1], labels[-1]
    first = sentences[0]
    source = SourceLines(first.source.name, "".join(text) + "\n")
    return Sentence(tuple(text), {RunningText.default_column: tuple(labels)}, first.line, source, number)


def _labels(piece: Piece, end: str) -> Iterator[str]:
    """The labels of the characters of a token; that of the last one begins with `end`."""
    ends = set[int]()
    if len(piece.words) > 1 and "".join(piece.words) == piece.form:
        ends.update(accumulate(map(len, piece.words[:-1])))
    elif len(piece.words) > 1:
        end = " ".join([end, *(edit_script(piece.form, word) for word in piece.words)])
    for place, character in enumerate(piece.form[:-1], 1):
        yield WORD if place in ends else BLANK if character.isspace() else INSIDE
    yield end


def _plain(lines: Iterable[tuple[int, str]], name: str) -> Iterator[Sentence]:
    """The paragraphs of plain text in parts. No more than a part and a line is held, also of a long paragraph."""
    text, number, first = "", 0, 1
    for place, line in chain(lines, [(0, "")]):
        words = " ".join(line.split())
        if words:
            *parts, text = _parts(f"{text} {words}" if text else words)
        else:
            parts = [text + "\n"] if text and is_blank(line) else []
        for part in parts:
            yield Sentence(tuple(part.rstrip()), {}, first, SourceLines(name, part), number)
        if is_blank(line):
            number, first, text = number + bool(text), first if not text else place + 1, ""


def _parts(text: str) -> Iterator[str]:
    """A text in parts of at most `LONGEST` characters. They end with a sentence's sign or a blank, if there is one."""
    start = 0
    while len(text) - start > LONGEST:
        piece = text[start : start + LONGEST + 1]
        blanks = [place for place in range(1, LONGEST) if piece[place] == " "]
        signs = [place for place in blanks if piece[place - 1] in _ENDS]
        signs += [place for place in range(1, LONGEST) if piece[place - 1] in _END_WITHOUT_BLANK]
        cut = max(signs) if signs else blanks[-1] if blanks else LONGEST
        yield piece[:cut] + (" " if piece[cut] == " " else "")
        start += cut + (piece[cut] == " ")
    yield text[start:]
