"""Runs for the hub of Hugging Face: what of a run is uploaded, and its card."""

from __future__ import annotations

import ast
import copy
import json
import re
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath, PureWindowsPath
from tempfile import TemporaryDirectory
from typing import Any

from ensue.arguments import check_path, check_type
from ensue.data.files import locations_in, named_locations, one_location
from ensue.errors import RunError
from ensue.extensions.importing.weight_files import check_contained
from ensue.hub import MAIN, PREFIX, Repository
from ensue.recipe import validate_recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import copy_run, list_origin
from ensue.runs.reporter import MetricsLog
from ensue.runs.schema import file_names
from ensue.runs.weights import write_text
from ensue.training.device import process_restored

PLACES = ("train", "valid", "test", "vectors")
"""The keys of a recipe that say where files are."""
HOW = "`pip install 'ensue[hub]'`; with `HF_HUB_OFFLINE=0` the first use downloads the model."
_LOADED = re.compile(r"^model = ensue\.load\((.+)\)$", re.M)


@process_restored()
def push(run: str | Path, name: str, *, license: str = "", language: str = "", private: bool = False) -> str:
    """Uploads a run to the repository `name` of the hub, in one commit, and returns its location `hf:NAME@COMMIT`.

    Uploaded is what the model is made of, with its pictures and its card. Of paths, only the last names are; reports
    and samples, which may quote the data, are not. The card begins with what the hub reads; `license` and `language`
    are names that the hub knows ("mit", "en"), and keys that README.md begins with stay. A repository that is new is
    private if `private` says so.

    Raises RunError for a run that is damaged, for a card without a license, and if the hub refuses.
    """
    check_path("the run", run)
    for what, text in (("the name", name), ("the license", license), ("the language", language)):
        check_type(what, text, str, "a string")
    repository = Repository.parse(PREFIX + name.removeprefix(PREFIX))
    assert repository is not None
    if repository.revision != MAIN:
        raise RunError(f"{repository}: expected a name without a revision: what is pushed is a new commit")
    source = RunDirectory(run)
    check_contained(source.path)
    hub = repository.package(uploads=True)
    with TemporaryDirectory(prefix="ensue-") as folder:
        target = Path(folder) / "run"
        assert source.weights_entry  # raises if there are none
        copy_run(source, target)
        for picture in (file for file in file_names() if file.endswith(".png") and (source.path / file).is_file()):
            shutil.copyfile(source.path / picture, target / picture)
        names = _without_paths(RunDirectory(target))
        text = _text(source) or f"# {source.path.name}\n\nA {source.recipe.what} ({source.recipe.describe()}).\n"
        with repository.told("README.md"):
            card = hub.ModelCard(text)
        facts = _facts(hub, source, repository, license=license, language=language)
        card.data = hub.ModelCardData(**{**facts, **card.data.to_dict()})
        if not card.data.license:
            raise RunError(f"{source.path}: its card has no license; --license names one, such as mit")
        card.text = "\n" + _body(card.text, source.path, repository, names)
        write_text(target / "README.md", str(card))
        files = sorted(path for path in target.rglob("*") if path.is_file())
        with repository.told():
            api = hub.HfApi(library_name="ensue")
            found = api.create_repo(repository.name, private=private or None, exist_ok=True)
            added = [hub.CommitOperationAdd(path.relative_to(target).as_posix(), str(path)) for path in files]
            message = f"A {source.recipe.what} of ensue"
            commit = api.create_commit(found.repo_id, added, commit_message=message)
            return f"{PREFIX}{found.repo_id}@{commit.oid}"


def license_of(run: str | Path) -> str:
    """The license that the card of a run begins with; "" if it has none."""
    source, repository = RunDirectory(run), Repository("card")
    hub = repository.package(uploads=True)
    with repository.told("README.md"):
        return str(hub.ModelCard(_text(source)).data.license or "")


def _text(run: RunDirectory) -> str:
    path = run.path / "README.md"
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _without_paths(run: RunDirectory) -> dict[str, str]:
    """Takes places of this machine out of a copied run and of those inside of it; returns new names by the old."""
    config, names = copy.deepcopy(run.config), {}
    for number, origin in enumerate(config.get("origins", [])):
        _without_paths(RunDirectory(run.origins / str(number)))
        list_origin(run, number)
        names[origin["path"]] = origin["path"] = f"origins/{number}"
    if "imported" in config:
        config["imported"]["path"] = _name(config["imported"]["path"], names)
    recipe = validate_recipe(_named(run.recipe.model_dump(), "", names), where=str(run.path / "recipe.toml"))
    run.write({"recipe.toml": recipe.to_toml(), "config.json": json.dumps(config, indent=2) + "\n"})
    return names


def _named(value: Any, key: str, names: dict[str, str]) -> Any:
    """A value of a recipe, with the last names of paths in place of the paths."""
    match value:
        case dict():
            return {inner: _named(part, inner, names) for inner, part in value.items() if part is not None}
        case list() | tuple():
            return [_named(part, key, names) for part in value]
        case str() if len(locations := locations_in(value)) > 1:
            return one_location([_named(part, key, names) for part in locations])
        case str() if value in names:
            return names[value]
        case str() if key in PLACES or PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute():
            return _name(value, names)
    return value


def _name(path: str, names: dict[str, str]) -> str:
    if path.startswith(PREFIX) or not (name := PureWindowsPath(path).name):
        return path
    return names.setdefault(path, name)


def _facts(hub: Any, run: RunDirectory, repository: Repository, *, license: str, language: str) -> dict[str, Any]:
    """The facts that the hub reads of a card: the kind of the model, and the scores that the run has kept."""
    records = MetricsLog(run.metrics).records()
    valid = [record for record in records if record["kind"] == "valid" and record["best"]][-1:]
    test = [record for record in records if record["kind"] == "test"][-1:]
    recipe, task = run.recipe, run.entry.pipeline_tag
    results = [
        hub.EvalResult(
            task_type=task or recipe.task, dataset_type="local", dataset_split=split, metric_type=metric,
            dataset_name=named_locations(_named(getattr(recipe.data, key) or recipe.data.train, key, {})),
            metric_value=value,
        )
        for split, key, kept in (("validation", "valid", valid), ("test", "test", test))
        for metric, value in (kept[0]["scores"] if kept else {}).items()
        if isinstance(value, float)
    ]  # fmt: skip
    return {
        "library_name": "ensue", "tags": ["ensue", recipe.task], "pipeline_tag": task or None,
        "license": license or None, "language": language or None,
        **({"model_name": repository.name.rpartition("/")[2], "eval_results": results} if results else {}),
    }  # fmt: skip


def _body(text: str, run: Path, repository: Repository, names: Mapping[str, str]) -> str:
    """The text of a card that is read elsewhere: without samples and paths of this machine."""
    location, title = str(repository), repository.name.rpartition("/")[2]
    text = re.sub(r"^# .*\n", lambda _: f"# {title}\n", text.lstrip("\n"), count=1)
    text = re.sub(r"^## Sample\n.*?(?=^## |\Z)", "", text, flags=re.M | re.S)
    text = re.sub(r"(,?) [Ee]very report in `metrics\.jsonl`\.", lambda found: "." * len(found[1]), text)
    paths = {str(run.absolute())}
    for written in _LOADED.findall(text):
        with suppress(ValueError, SyntaxError):  # of a line that somebody has edited
            paths.add(ast.literal_eval(written))
    text = _LOADED.sub(lambda _: f"model = ensue.load({location!r})", text)
    blocks = text.split("```")
    for path in paths:
        quoted = re.escape(shlex.quote(path))  # in commands alone: elsewhere a short path is a word of the text
        for number in (n for n in range(1, len(blocks), 2) if not blocks[n].startswith("python")):
            block = re.sub(rf"(?<= ){quoted}/recipe\.toml(?=\s)", "recipe.toml", blocks[number])
            blocks[number] = re.sub(rf"(?<= ){quoted}(?=\s)", lambda _: location, block)
    text = re.sub(r"^## Use\n", lambda found: f"{found[0]}\n{HOW}\n", "```".join(blocks), flags=re.M)
    known = {**names, **dict.fromkeys(paths, location)}
    places = (
        (r"(?<!\w){}" if {*old} & {*"/\\"} and old.strip("/\\.") else "(?<=`){}(?=`)").format(re.escape(old))
        for old in sorted(known, key=len, reverse=True)
    )
    return re.sub("|".join(places), lambda found: known[found[0]], text)
