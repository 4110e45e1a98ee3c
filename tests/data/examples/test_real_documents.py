"""The published sets of labeled texts, unchanged: counts equal those of their authors."""

from collections import Counter
from pathlib import Path

import pytest

from ensue.data.decoding import decode
from ensue.data.examples import Document, DocumentSource
from ensue.data.examples.layout import DocumentChoice
from ensue.errors import DataError

pytestmark = pytest.mark.slow

NEWS = DocumentChoice(("2", "3"), joined=True)


def documents(path: Path, choice: DocumentChoice | None = None, *, encoding: str = "utf-8") -> list[Document]:
    return list(DocumentSource(path, choice, encoding=encoding))


@pytest.mark.parametrize(
    ("name", "count", "classes", "choice", "encoding"),
    [
        ("imdb/train.jsonl.xz", 25_000, {"neg": 12_500, "pos": 12_500}, None, "utf-8"),
        ("imdb/test.jsonl.xz", 25_000, {"neg": 12_500, "pos": 12_500}, None, "utf-8"),
        ("sst/stsa.binary.train.xz", 6_920, {"1": 3_610, "0": 3_310}, None, "utf-8"),
        ("sst/stsa.binary.dev", 872, {"1": 444, "0": 428}, None, "utf-8"),
        ("sst/stsa.binary.test.xz", 1_821, {"0": 912, "1": 909}, None, "utf-8"),
        ("sst/stsa.fine.train.xz", 8_544, 5, None, "utf-8"),
        ("sst/stsa.fine.dev", 1_101, 5, None, "utf-8"),
        ("sst/stsa.fine.test.xz", 2_210, 5, None, "utf-8"),
        ("sms_spam/SMSSpamCollection.xz", 5_574, {"ham": 4_827, "spam": 747}, None, "utf-8"),
        ("cola/in_domain_train.tsv.xz", 8_551, 2, DocumentChoice(("4",), "2"), "utf-8"),
        ("cola/in_domain_dev.tsv", 527, 2, DocumentChoice(("4",), "2"), "utf-8"),
        ("cola/out_of_domain_dev.tsv", 516, 2, DocumentChoice(("4",), "2"), "utf-8"),
        ("mrpc/msr_paraphrase_train.txt.xz", 4_076, {"1": 2_753, "0": 1_323}, None, "utf-8"),
        ("mrpc/msr_paraphrase_test.txt.xz", 1_725, {"1": 1_147, "0": 578}, None, "utf-8"),
        ("sick/SICK_train.txt.xz", 4_500, 3, DocumentChoice(labels="entailment_judgment"), "utf-8"),
        ("rte_resplit/train.tsv.xz", 1_244, 2, None, "utf-8"),
        ("ag_news_test_only/test.csv.xz", 7_600, dict.fromkeys("1234", 1_900), NEWS, "utf-8"),
        ("samsum/train.csv.xz", 14_731, 14_731, DocumentChoice(("dialogue", "summary"), "id"), "utf-8"),
        ("samsum/validation.csv.xz", 818, 818, DocumentChoice(("dialogue", "summary"), "id"), "utf-8"),
        ("samsum/test.csv.xz", 819, 819, DocumentChoice(("dialogue", "summary"), "id"), "utf-8"),
        ("mr/rt-polarity.all.xz", 10_662, {"0": 5_331, "1": 5_331}, None, "cp1252"),
        ("subj/subj.all.xz", 10_000, {"0": 5_000, "1": 5_000}, None, "cp1252"),
        ("cr/custrev.all.xz", 3_775, 2, None, "cp1252"),
        ("mpqa/mpqa.all.xz", 10_606, 2, None, "cp1252"),
    ],
)
def test_published_counts_and_classes_are_read(
    shared_data: Path,
    name: str,
    count: int,
    classes: int | dict[str, int],
    choice: DocumentChoice | None,
    encoding: str,
) -> None:
    result = documents(shared_data / name, choice, encoding=encoding)
    assert len(result) == count
    counts = Counter(label for document in result for label in document.labels)
    assert counts == classes if isinstance(classes, dict) else len(counts) == classes
    assert len({len(document.texts) for document in result}) == 1


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("imdb/train.jsonl.xz", 'json, label: "label", text: "text"'),
        ("sst/stsa.fine.train.xz", "first-word"),
        ("sms_spam/SMSSpamCollection.xz", "tsv, label: column 1, text: column 2"),
        (
            "mrpc/msr_paraphrase_train.txt.xz",
            'tsv with a header, label: column 1 "Quality", texts: column 4 "#1 String" + column 5 "#2 String"',
        ),
        (
            "rte_resplit/dev.tsv",
            'tsv with a header, label: column 4 "label", texts: column 2 "sentence1" + column 3 "sentence2"',
        ),
        ("dialogsum/dialogsum.dev.jsonl.xz", 'json, label: "topic", text: "dialogue"'),
    ],
)
def test_the_layouts_of_published_data_are_detected(shared_data: Path, name: str, shown: str) -> None:
    assert str(DocumentSource(shared_data / name).layout) == shown


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cola/in_domain_train.tsv.xz", "cannot tell which is the label: it may be column 1, column 2, column 3; "),
        ("ag_news_test_only/test.csv.xz", "which is the text: it may be column 2, column 3; --set data.texts"),
        ("sick/SICK_train.txt.xz", 'label: it may be column 4 "relatedness_score", column 5 "entailment_judgment"; '),
        (
            "mr/rt-polarity.all.xz",
            ":32: not UTF-8 (byte 0xe9 in column 19); for Windows' Western European try --encoding cp1252",
        ),
        ("tinyshakespeare/input.txt.xz", "no labels found; set --format (in training --set data.format="),
        ("samsum/test.csv.xz", "cannot tell which is the label: none of"),
    ],
)
def test_ambiguous_layouts_of_published_data_are_refused(shared_data: Path, name: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        DocumentSource(shared_data / name)
    assert message in caught.value.in_options()


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("mrpc/msr_paraphrase_test.txt.xz", DocumentChoice()),
        ("samsum/train.csv.xz", DocumentChoice(("dialogue",), "id")),
        ("imdb/train.jsonl.xz", DocumentChoice()),
        ("sst/stsa.fine.train.xz", DocumentChoice()),
    ],
)
def test_published_data_are_written_back_unchanged(shared_data: Path, name: str, choice: DocumentChoice) -> None:
    path = shared_data / name
    source = DocumentSource(path, choice)
    text = "".join(decode(path, "utf-8"))
    assert "".join(source.write(document, document.labels) for document in source) == text
