"""Data sets of Hugging Face as running text: saved folders, splits, and unknown names."""

from pathlib import Path

import pytest

from ensue.data.corpus.columns import DatasetSource
from ensue.errors import DataError, EnsueError


def test_invalid_addresses_are_refused() -> None:
    for address in ("hf:", "hf:@train", "hf:a,b,c"):
        with pytest.raises(DataError, match="expected an address such as hf:NAME"):
            DatasetSource(address, "text")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.extensions.hub.addresses.find_spec", lambda name: None)
    with pytest.raises(EnsueError, match=r"pip install 'ensue\[datasets\]'"):
        DatasetSource("hf:some", "text")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_column_of_a_saved_data_set_is_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    texts = [None if n % 7 == 0 else f"text {n}" for n in range(10_000)]
    train = datasets.Dataset.from_dict({"text": texts, "n": range(10_000)})
    train.save_to_disk(tmp_path / "one", num_shards=3)
    both = datasets.DatasetDict({"train": train, "test": train.select(range(8))})
    both.save_to_disk(tmp_path / "both")
    expected = "".join(f"{text}\n" for text in texts if text)
    one = DatasetSource(f"hf:{tmp_path}/one", "text")
    assert "".join(one.chunks()) == expected == "".join(DatasetSource(f"hf:{tmp_path}/both", "text").chunks())
    test = DatasetSource(f"hf:{tmp_path}/both@test", "text")
    assert "".join(test.chunks()) == "".join(f"{text}\n" for text in texts[:8] if text)
    assert len({one.fingerprint(), test.fingerprint()}) == 2
    assert one.fingerprint() == DatasetSource(f"hf:{tmp_path}/one", "text").fingerprint()
    for location, column, message in (
        ("one", "txt", r'no "txt"; did you mean "text"\?$'),
        ("one", "n", r'/one:1: "n": expected a text, found 0$'),
        ("both@tst", "text", r'no split "tst"; did you mean "test"\?; it has train, test$'),
        ("one,small", "text", "a folder has no configurations; found small$"),
    ):
        with pytest.raises(DataError, match=message):
            DatasetSource(f"hf:{tmp_path}/{location}", column)
    with pytest.raises(DataError, match=r"^hf:nobody/nothing: not on this machine; with HF_HUB_OFFLINE=0 it is downl"):
        DatasetSource("hf:nobody/nothing", "text")
    (tmp_path / "one" / "dataset_info.json").write_text("{")
    with pytest.raises(DataError, match="one: cannot be read: "):
        DatasetSource(f"hf:{tmp_path}/one", "text")
