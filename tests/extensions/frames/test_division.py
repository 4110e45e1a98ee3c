"""Series and images that are held out for validation are not in the training data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensue.errors import DataError
from ensue.extensions.frames.captioning.pipeline import CaptioningPipeline
from ensue.extensions.frames.data.source import READERS
from training.divided import check_counts_of_both_parts, job, write_table


def test_captions_of_an_image_are_in_one_set(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = [("path", "caption")]
    for n in range(20):
        np.save(tmp_path / f"{n}.npy", generator.random((16, 16), np.float32))
        rows += [(f"{n}.npy", f"caption {which} of image") for which in "abcde"]
    frame_job = job("caption-lstm", write_table(tmp_path / "captions.csv", rows, ","))
    train, valid = (
        {part.rows[row].tobytes() for row in range(len(part))}
        for part in (frame_job.split.train, frame_job.split.valid)
    )
    assert (len(train), len(valid), train & valid) == (18, 2, set())
    assert (
        "100 series come from 20 sources: 2 with 10 series are for validation, no source is in both" in frame_job.notes
    )


def speakers(folder: Path) -> dict[str, Any]:
    """Write the recordings of ten speakers as files, as a table of paths, or as one table of frames."""
    generator = np.random.default_rng(0)
    paths, table = [("path", "label", "speaker")], [("series", "speaker", "label", "x", "y")]
    for n in range(20):
        name, speaker, label = f"{'ab'[n % 2]}_s{n // 2}_{n}.npy", f"s{n // 2}", "ab"[n % 2]
        values = generator.random((3, 2), np.float32)
        np.save(folder / name, values)
        paths.append((name, label, speaker))
        table += [(str(n), speaker, label, str(x), str(y)) for x, y in values.tolist()]
    return {
        "pattern": (f"{folder}/*.npy", {"pattern": "{label}_{speaker}_{}.npy"}),
        "paths": (write_table(folder / "paths.csv", paths, ","), {}),
        "table": (write_table(folder / "frames.csv", table, ","), {}),
    }


def test_series_of_a_group_are_in_one_set(tmp_path: Path) -> None:
    recordings = speakers(tmp_path)
    for location, options in recordings.values():
        frame_job = job("classify-frames", location, group="speaker", **options)
        assert (len(frame_job.split.valid), len({*frame_job.split.valid.groups})) == (2, 1)
        assert not {*frame_job.split.valid.groups} & {*frame_job.split.train.groups}
        assert frame_job.split.train.rows.values.shape[1] == 2
    with pytest.raises(
        DataError, match=r'no group "spaeker"; data\.group names a column of a table of paths or of frames'
    ):
        job("classify-frames", recordings["paths"][0], group="spaeker")


def test_series_are_drawn_by_class(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    paths = [("path", "label")]
    for n in range(40):
        np.save(tmp_path / f"{n}.npy", generator.random((3, 2), np.float32))
        paths.append((f"{n}.npy", "rare" if n < 3 else "usual"))
    frame_job = job("classify-frames", write_table(tmp_path / "paths.csv", paths, ","))
    assert frame_job.split.valid.label_counts == {"rare": 1, "usual": 3}


def test_few_series_with_labels_of_frames_are_divided_by_time(tmp_path: Path) -> None:
    """The end of each series is for validation, except with ten series or more, or with named groups."""
    rows = [(str(n), str(t), "ab"[t // 10 % 2]) for n, count in enumerate([4, 20, *[40] * 8]) for t in range(count)]
    for num_series, group, lengths in ((9, "", [2, *[4] * 7]), (10, "", None), (9, "series", None)):
        table = [row for row in rows if int(row[0]) < num_series]
        path = write_table(tmp_path / "a.csv", [("series", "x", "label"), *table], ",")
        split = job("tag-frames", path, group=group).split
        assert (len(split.valid) == 1) if lengths is None else (split.valid.lengths.tolist() == lengths)
        assert sum(split.valid.lengths) + sum(split.train.lengths) == len(table)
        for part in (split.train, split.valid):
            labels_of_part = "".join(label for labels in part.labels for label in labels)
            assert labels_of_part == "".join("ab"[int(x) // 10 % 2] for x in part.rows.values[:, 0])
        assert ("the last 10% of each of the 9 series" in split.valid_from) == (lengths is not None)


def test_test_images_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("path", "caption")]
    for n in range(4):
        np.save(tmp_path / f"{n}.npy", np.random.default_rng(n).random((16, 16), np.float32))
        rows += [(f"{n}.npy", f"caption {which} of image") for which in "ab"]
    path, places = write_table(tmp_path / "captions.csv", rows, ","), list[Path]()
    read = READERS["npy"]
    monkeypatch.setitem(READERS, "npy", lambda place, reading: places.append(place) or read(place, reading))
    settings = {"decoder.d_model": 8, "grid.channels": [4], "grid.halvings": 1}
    frame_job = job("caption-lstm", path, test=str(path), valid=str(path), settings=settings)
    model, scored = frame_job.build_model().eval(), list[Any]()
    monkeypatch.setattr(CaptioningPipeline, "score_pairs", lambda self, items, **_: scored.append(items))
    frame_job.test(model)
    assert len(places) == 3 * len(rows[1:])
    frame_job.pipeline(model).evaluate(path)
    ours, theirs = ([(item.series.frames.tobytes(), item.targets) for item in items] for items in scored)
    assert len(ours) == 4
    assert ours == theirs


def test_series_of_both_parts_are_counted(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    frames = [("path", "label")]
    for n in range(12):
        np.save(tmp_path / f"{n}.npy", generator.random((3, 2), np.float32))
        frames.append((f"{n}.npy", "ab"[n % 2]))
    np.save(tmp_path / "new.npy", generator.random((3, 2), np.float32))
    check_counts_of_both_parts("classify-frames", "series", frames, tmp_path)
