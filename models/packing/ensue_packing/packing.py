"""Wheels of runs. A wheel has the files of a run, its card and license, an entry point, and checksums, but no code."""

import base64
import copy
import hashlib
import json
import re
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from ensue.errors import EnsueError, RunError, check_path, check_type, quote
from ensue.extensions.hub.pushing import card_of, copy_without_paths, final_records, license_of, make_card_text
from ensue.library import load
from ensue.outputs import atomic_output, check_outputs
from ensue.runs.directory import RunDirectory, list_origin
from ensue.runs.reporter import MetricsLog
from ensue.runs.schema import ManifestContent
from ensue.runs.weights import SCALES_SUFFIX, partial_path, read_tensors, write_tensors, write_text
from ensue.tasks.labeling.cutter import CutterAndTagger
from ensue.training.device import restore_process
from ensue.version import VERSION

_ZIP_DATE = (1980, 1, 1, 0, 0, 0)
"""The time of all files in a wheel, so that its bytes depend on the run and the options alone."""


@restore_process()
def pack(
    run: str | Path, wheel: str, out: str | Path = ".", *, license: str = "", license_file: str | Path | None = None,
    tagger: str | Path | None = None, precision: str = "f32", test: str | Path | None = None, version: str = "1.0",
    overwrite: bool = False,
) -> Path:  # fmt: skip
    """Write a wheel with a run, and return its path. After `pip install`, the model is used by its name.

    The wheel has the files that use needs, and the pictures and the final scores of the card. Paths are shortened to
    their last component. Reports and samples, which may quote the data, are left out.

    Args:
        run: The run directory.
        wheel: The name of the model, such as "en". The package is "ensue-en".
        out: The folder in which the wheel is written.
        license: The license, an SPDX expression such as "CC-BY-SA-4.0". By default, the license in the run's card.
        license_file: The text of the license, with attributions.
        tagger: For a cutter, the run of a tagger. The model in the wheel analyzes raw text with both.
        precision: The type of matrices in the file of weights, "f32" or "int8". They are float32 in memory.
        test: Test data. The scores of the packed model are in the wheel, in place of those of the run.
        version: The version of the package.
        overwrite: Whether an existing wheel may be replaced.

    Raises:
        EnsueError: An argument is invalid, or the wheel exists.
        RunError: The run is damaged, has no weights or no license, or `tagger` cannot be after the run.
    """
    check_path("the run", run)
    check_path("out", out)
    for argument, value, pattern, example in (
        ("the name", wheel, r"[a-z][a-z0-9]*(-[a-z0-9]+)*", "en-news"), ("the version", version, r"\d+(\.\d+)*", "1.0"),
        ("the license", license, r"|[\w.+() -]+", "CC-BY-SA-4.0"), ("the precision", precision, "f32|int8", "int8"),
    ):  # fmt: skip
        check_type(argument, value, str, "a string")
        if not re.fullmatch(pattern, value, re.ASCII):
            raise EnsueError(f'{argument} is {quote(value)}; expected a value such as "{example}"')
    source, others = RunDirectory(run), [RunDirectory(other) for other in [tagger] if other is not None]
    package, texts = f"ensue_{wheel.replace('-', '_')}", [Path(text) for text in [license_file] if text is not None]
    file, facts = Path(out) / f"{package}-{version}-py3-none-any.whl", f"{package}-{version}.dist-info"
    check_outputs([source.path, *(other.path for other in others)], files=[file], overwrite=overwrite)
    if not (license := license or license_of(source.path)):
        raise RunError(f"{source.path}: no license in the model card; expected --license, such as MIT")
    with TemporaryDirectory(prefix="ensue-") as folder:
        packed = RunDirectory(Path(folder, package, wheel))
        names = copy_without_paths(source, packed.path, others)
        _finish(packed, source.weights_entry.written, is_rounded=precision == "int8")
        pipeline: Any = load(packed.path, device="cpu")
        if others and not isinstance(pipeline, CutterAndTagger):
            raise RunError(f"{source.path} and {others[0].path}: expected a cutter and a tagger of words")
        records = final_records(source)
        if test is not None:
            scores = pipeline.evaluate(test)
            step = records[0]["step"] if records else 0
            records = [{"kind": "test", "step": step, "scores": scores.as_json(), "summary": scores.summary()}]
        for record in records:
            MetricsLog(packed.metrics).append(**record)
        ((metadata, body),) = re.findall(r"\A(?:---\n((?:.+\n)*?)---\n)?((?s:.*))", card_of(source))
        metadata = re.sub("^license:.*\n", "", metadata, flags=re.M)
        card = make_card_text(body, source.path, wheel, names, f"`pip install {file.name}`")
        write_text(packed.path / "README.md", f"---\n{metadata}license: {license}\n---\n\n{card}")
        paths = sorted(path for path in packed.path.rglob("*") if path.is_file())
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    about = [
        "Metadata-Version: 2.4", f"Name: ensue-{wheel}", f"Version: {version}", f"Summary: A {source.entry.what}",
        f"License-Expression: {license}", *(f"License-File: {text.name}" for text in texts),
        *(f"Requires-Dist: {needed}" for needed in (f"ensue>={VERSION}", *(source.recipe.needs or ()))),
        "Description-Content-Type: text/markdown", "", card,
    ]  # fmt: skip
    tags = f"Wheel-Version: 1.0\nGenerator: ensue {VERSION}\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files |= {f"{facts}/licenses/{text.name}": text.read_bytes() for text in texts}
    files |= {f"{facts}/METADATA": "\n".join(about).encode(), f"{facts}/WHEEL": tags.encode()}
    files[f"{facts}/entry_points.txt"] = f"[ensue.models]\n{wheel} = {package}\n".encode()
    record = "".join(f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items())
    files[f"{facts}/RECORD"] = f"{record}{facts}/RECORD,,\n".encode()
    with atomic_output(file) as partial, zipfile.ZipFile(partial, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _ZIP_DATE), content, zipfile.ZIP_DEFLATED)
    return file


def _finish(run: RunDirectory, time: str, *, is_rounded: bool) -> None:
    """Round the weights of a copied run and of its origins, and set the time of writing in their manifests."""
    config = copy.deepcopy(run.config)
    for number, origin in enumerate(config.get("origins", [])):
        inner = RunDirectory(run.origins / str(number))
        _finish(inner, time, is_rounded=is_rounded)
        list_origin(run, number)
        origin["sha256"] = inner.weights_entry.sha256
    if is_rounded:
        partial = partial_path(run.weights)
        write_tensors(partial, _round(read_tensors(run.weights)))
        run.manifest.replace({run.weights.name: partial})
    run.write({"config.json": json.dumps(config, indent=2) + "\n"})
    files = {name: entry.model_copy(update={"written": time}) for name, entry in run.manifest.entries().items()}
    run.manifest.write(ManifestContent(files=files))


def _round(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with matrices in int8 and their scales. The largest number of a row becomes 127 or -127."""
    rounded = dict(tensors)
    for name, tensor in tensors.items():
        if tensor.dtype == torch.float32 and tensor.dim() > 1 and tensor.numel():
            scales = tensor.flatten(1).abs().amax(1, keepdim=True) / 127
            numbers = tensor.flatten(1) / scales.clamp_min(1e-30)
            rounded |= {name: numbers.round().to(torch.int8).view_as(tensor), name + SCALES_SUFFIX: scales.squeeze(1)}
    return rounded


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
