"""Upload of runs to the Hugging Face Hub with a model card, and without local paths and samples of the data."""

import ast
import copy
import json
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath, PureWindowsPath
from tempfile import TemporaryDirectory
from typing import Any

from ensue.data.files import as_location, join_locations, locations_in
from ensue.errors import RunError, check_path, check_type, to_one_line
from ensue.extensions.hub.repository import MAIN, PREFIX, Repository
from ensue.extensions.importing.weight_files import check_contained
from ensue.recipe import validate_recipe
from ensue.runs.directory import RunDirectory, copy_run, list_origin
from ensue.runs.reporter import MetricsLog
from ensue.runs.schema import file_names
from ensue.runs.weights import write_text
from ensue.training.device import restore_process

PATH_KEYS = ("train", "valid", "test", "vectors")
"""The keys of a recipe whose values are paths."""
INSTALLATION = "`pip install 'ensue[hub]'`; with `HF_HUB_OFFLINE=0` the first use downloads the model."
_LOAD_LINE = re.compile(r"^model = ensue\.load\((.+)\)$", re.M)


@restore_process()
def push(run: str | Path, name: str, *, license: str = "", language: str = "", private: bool = False) -> str:
    """Upload a run to the Hugging Face Hub in one commit, and return its location `hf:NAME@COMMIT`.

    The commit has the files of the model, its pictures, and its model card. Paths are shortened to their last
    component. Reports and samples, which may quote the data, are not uploaded.

    Args:
        run: The run directory.
        name: The repository on the Hub, OWNER/NAME.
        license: The license for the metadata of the card, such as "mit". Metadata in the run's README.md override it.
        language: The language for the metadata of the card, such as "en".
        private: Whether a new repository is private.

    Raises:
        RunError: The run is damaged, its card has no license, or the hub refuses the upload.
    """
    check_path("the run", run)
    for argument, text in (("the name", name), ("the license", license), ("the language", language)):
        check_type(argument, text, str, "a string")
    repository = Repository.parse(PREFIX + name.removeprefix(PREFIX))
    if repository.revision != MAIN:
        raise RunError(f"{repository}: expected a name without a revision, since a push creates a commit")
    source = RunDirectory(run)
    check_contained(source.path)
    hub = repository.package(uploads=True)
    with TemporaryDirectory(prefix="ensue-") as folder:
        target = Path(folder) / "run"
        names = copy_without_paths(source, target)
        try:
            card = hub.ModelCard(card_of(source))
        except Exception as error:  # yaml and huggingface_hub raise errors of many types
            reason = to_one_line(str(error))[:200]
            raise RunError(f"{source.path / 'README.md'}: invalid metadata of the card ({reason})") from None
        metadata = _make_metadata(hub, source, repository, license=license, language=language)
        card.data = hub.ModelCardData(**{**metadata, **card.data.to_dict()})
        if not card.data.license:
            raise RunError(f"{source.path}: no license in the model card; expected --license, such as mit")
        card.text = "\n" + make_card_text(card.text, source.path, str(repository), names)
        write_text(target / "README.md", str(card))
        files = sorted(path for path in target.rglob("*") if path.is_file())
        with repository.errors_in_one_line():
            api = hub.HfApi(library_name="ensue")
            created = api.create_repo(repository.name, private=private or None, exist_ok=True)
            operations = [hub.CommitOperationAdd(path.relative_to(target).as_posix(), str(path)) for path in files]
            commit = api.create_commit(created.repo_id, operations, commit_message=f"A {source.recipe.what} of ensue")
            return f"{PREFIX}{created.repo_id}@{commit.oid}"


def license_of(run: str | Path) -> str:
    """Return the license in the metadata of a run's card, or ""."""
    match = re.match(r"---\n(?:.+\n)*?license: *(.*\S)", RunDirectory(run).card)
    return match[1].strip("\"'") if match else ""


def card_of(run: RunDirectory) -> str:
    """Return the card of a run, or a short card if the run has none."""
    return run.card or f"# {run.path.name}\n\nA {run.recipe.what} ({run.recipe.describe()}).\n"


def final_records(run: RunDirectory) -> list[dict[str, Any]]:
    """Return the records of the best validation, without its sample, and of the test; a missing record is left out."""
    best = {record["kind"]: record for record in MetricsLog(run.metrics).records() if record.get("best", True)}
    return [best[kind] | ({"sample": ""} if kind == "valid" else {}) for kind in ("valid", "test") if kind in best]


def copy_without_paths(source: RunDirectory, target: Path, others: Sequence[RunDirectory] = ()) -> dict[str, str]:
    """Copy a run with its pictures, with `others` as further origins, and shorten local paths in the copy.

    Return the short names by path. Raise RunError if the run is damaged or has no weights.
    """
    assert source.weights_entry  # raises if the run has no weights
    copy_run(source, target)
    for picture in (file for file in file_names() if file.endswith(".png") and (source.path / file).is_file()):
        shutil.copyfile(source.path / picture, target / picture)
    return _shorten_paths(RunDirectory(target), others)


def _shorten_paths(run: RunDirectory, others: Sequence[RunDirectory] = ()) -> dict[str, str]:
    """Shorten local paths in a copied run and in its origins, to which `others` are added. Return the short names."""
    config, names = copy.deepcopy(run.config), {}
    for other in others:
        origins = config.setdefault("origins", [])
        copy_run(other, run.origins / str(len(origins)))
        origins.append({"path": str(other.path), "sha256": other.weights_entry.sha256})
    for number, origin in enumerate(config.get("origins", [])):
        _shorten_paths(RunDirectory(run.origins / str(number)))
        list_origin(run, number)
        names[origin["path"]] = origin["path"] = f"origins/{number}"
    if "imported" in config:
        config["imported"]["path"] = _shorten(config["imported"]["path"], names)
    document = _shorten_values(run.recipe.model_dump(), "", names)
    recipe = validate_recipe(document, where=str(run.path / "recipe.toml"), is_trained=True)
    run.write({"recipe.toml": recipe.to_toml(), "config.json": json.dumps(config, indent=2) + "\n"})
    return names


def _shorten_values(value: Any, key: str, names: dict[str, str]) -> Any:
    """Return a value of a recipe with shortened paths, and add their short names to `names`."""
    match value:
        case dict():
            return {inner: _shorten_values(item, inner, names) for inner, item in value.items() if item is not None}
        case list() | tuple():
            return [_shorten_values(item, key, names) for item in value]
        case str() if len(locations := locations_in(value)) > 1:
            return as_location([_shorten_values(location, key, names) for location in locations])
        case str() if value in names:
            return names[value]
        case str() if key in PATH_KEYS or PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute():
            return _shorten(value, names)
    return value


def _shorten(path: str, names: dict[str, str]) -> str:
    """Return the last component of a path, and add it to `names`. Addresses of the hub are unchanged."""
    if path.startswith(PREFIX) or not (name := PureWindowsPath(path).name):
        return path
    return names.setdefault(path, name)


def _make_metadata(
    hub: Any, run: RunDirectory, repository: Repository, *, license: str, language: str
) -> dict[str, Any]:
    """Return the metadata of a card: the task, the license, and the validation and test scores of the best weights."""
    recipe, task = run.recipe, run.entry.pipeline_tag
    splits = {"valid": "validation", "test": "test"}
    records = [(each["kind"], splits[each["kind"]], each["scores"]) for each in final_records(run)]
    results = [
        hub.EvalResult(
            task_type=task or recipe.task, dataset_type="local", dataset_split=split, metric_type=metric,
            dataset_name=join_locations(_shorten_values(getattr(recipe.data, key) or recipe.data.train, key, {})),
            metric_value=value,
        )
        for key, split, scores in records
        for metric, value in scores.items()
        if isinstance(value, float)
    ]  # fmt: skip
    return {
        "library_name": "ensue", "tags": ["ensue", recipe.task], "pipeline_tag": task or None,
        "license": license or None, "language": language or None,
        **({"model_name": repository.name.rpartition("/")[2], "eval_results": results} if results else {}),
    }  # fmt: skip


def make_card_text(
    text: str, run: Path, location: str, names: Mapping[str, str], installation: str = INSTALLATION
) -> str:
    """Return the text of a card in which samples are removed, and an address or a name replaces local paths."""
    text = re.sub(r"^# .*\n", lambda _: f"# {re.split('[:/]', location)[-1]}\n", text.lstrip("\n"), count=1)
    text = re.sub(r"^## Sample\n.*?(?=^## |\Z)", "", text, flags=re.M | re.S)
    # if the removed clause follows a comma, its sentence gets a period instead of the comma
    text = re.sub(r"(,?) [Ee]very report in `metrics\.jsonl`\.", lambda match: "." * len(match[1]), text)
    paths = {str(run.absolute())}
    for literal in _LOAD_LINE.findall(text):
        with suppress(ValueError, SyntaxError):  # not a Python literal, since the line was edited
            paths.add(ast.literal_eval(literal))
    text = _LOAD_LINE.sub(lambda _: f"model = ensue.load({location!r})", text)
    blocks = text.split("```")
    for path in paths:
        quoted = re.escape(shlex.quote(path))  # replaced only in commands, since in prose a short path may be a word
        for number in (n for n in range(1, len(blocks), 2) if not blocks[n].startswith("python")):
            block = re.sub(rf"(?<= ){quoted}/recipe\.toml(?=\s)", "recipe.toml", blocks[number])
            blocks[number] = re.sub(rf"(?<= ){quoted}(?=\s)", lambda _: location, block)
    text = re.sub(r"^## Use\n", lambda match: f"{match[0]}\n{installation}\n", "```".join(blocks), flags=re.M)
    replacements = {**names, **dict.fromkeys(paths, location)}
    patterns = (  # a name without a slash may be a word of the text, so it is replaced only between backticks
        (r"(?<!\w){}" if {*old} & {*"/\\"} and old.strip("/\\.") else "(?<=`){}(?=`)").format(re.escape(old))
        for old in sorted(replacements, key=len, reverse=True)
    )
    return re.sub("|".join(patterns), lambda match: replacements[match[0]], text)
