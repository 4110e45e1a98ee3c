"""Runs on the hub: uploads, the model card, and downloads from correct and faulty servers on 127.0.0.1."""

import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from command_fixtures import Ensue
from ensue import load, push, train
from ensue.errors import DataError, EnsueError, RunError
from ensue.extension import is_address, run_name
from ensue.extensions.experiments.search import search
from ensue.extensions.hub.pushing import INSTALLATION, make_card_text
from ensue.extensions.hub.repository import Repository
from ensue.extensions.importing.importing import import_run
from ensue.notices import Notice
from ensue.recipe import read_recipe
from ensue.runs.directory import RunDirectory
from extensions.hub.hub_server import Hub, serving
from extensions.importing.published import Bert, wordpiece, write_bert
from kept_runs.make import unpacked

pytestmark = pytest.mark.filterwarnings("ignore:Use .content=")  # of huggingface_hub
TAGGER = "tag-contextual"


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    with serving() as hub:
        yield hub


def use_hub(server: Hub, cache: Path, patch: pytest.MonkeyPatch) -> None:
    """Make the server the hub of this process, with a token and the permission to download."""
    template = server.address + "/{repo_id}/resolve/{revision}/{filename}"
    values = {
        "ENDPOINT": server.address, "HUGGINGFACE_CO_URL_TEMPLATE": template, "HF_HUB_CACHE": str(cache),
        "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True,
    }  # fmt: skip
    for name, value in values.items():
        patch.setattr(f"huggingface_hub.constants.{name}", value)
    patch.setenv("HF_TOKEN", server.token)
    patch.setenv("HF_HUB_OFFLINE", "0")


@pytest.fixture(scope="module")
def pushed(server: Hub, run: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the run in the repository me/tagger, which no test changes."""
    with pytest.MonkeyPatch.context() as patch:
        use_hub(server, tmp_path_factory.mktemp("kept"), patch)
        return push(run, "me/tagger", license="mit", language="en")


@pytest.fixture
def hub(server: Hub, pushed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The server as the hub of this process, with an empty cache."""
    use_hub(server, tmp_path / "kept", monkeypatch)
    server.requests.clear()
    commits = {name: [*each] for name, each in server.commits.items()}
    yield server
    server.fault, server.commits = "", commits


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagger with features of another run, whose recipe and card have absolute paths; tests only read it."""
    folder = tmp_path_factory.mktemp("private place")
    unpacked(TAGGER, folder)
    path = folder / TAGGER
    with_paths(path, folder)
    return path


def with_paths(path: Path, folder: Path) -> None:
    """Replace the relative paths in the recipe, configuration and card of a run by absolute ones."""
    run = RunDirectory(path)
    recipe = (
        run.recipe.to_toml().replace('"names.txt"', f'"{folder}/names.txt"').replace('"origin"', f'"{folder}/origin"')
    )
    config = json.loads((path / "config.json").read_text())
    config["origins"][0]["path"] = f"{folder}/origin"
    run.write({"recipe.toml": recipe, "config.json": json.dumps(config)})
    card = (path / "README.md").read_text()
    card = card.replace("names.txt", f"{folder}/names.txt").replace("`origin`", f"`{folder}/origin`")
    card = re.sub(rf"^(.*ensue \w+ ){TAGGER}", lambda match: match[1] + shlex.quote(str(path)), card, flags=re.M)
    card = card.replace(f"'{TAGGER}'", f"'{path}'")
    (path / "README.md").write_text(card + "\n## Sample\n\n    A line of the data.\n")


def sentences(model: Any) -> Any:
    return [str(each) for each in model.predict(["Ann saw London", "Bob"])]


def forbid_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_a_location_names_a_repository_and_a_revision() -> None:
    assert [is_address(address) for address in ("runs/one", "hf", "C:/hf", Path("hf:me/one"))] == [False] * 3 + [True]
    for read in (load, lambda path: import_run(path, "out")):
        with pytest.raises(
            EnsueError, match=r'^xy:me/one: no such .*; no installed extension reads addresses with "xy:"'
        ):
            read("xy:me/one")
    assert Repository.parse("hf:me/one") == ("me/one", "main")
    assert Repository.parse("hf:one@v1.0") == ("one", "v1.0")
    assert str(Repository.parse("hf:me/one@v1")) == "hf:me/one@v1"
    for wrong in ("hf:", "hf:@v1", "hf:me/one@", "hf:../one", "hf:one@../../x", "hf:a,b", "hf:a b", "hf:a@-x"):
        with pytest.raises(RunError, match="expected an address such as hf:NAME or hf:NAME@REVISION"):
            Repository.parse(wrong)
    assert [run_name(path) for path in ("hf:me/one@v1", "runs/one", "x/models--me--one/snapshots/0f")] == ["one"] * 3


@pytest.mark.slow
def test_a_pushed_run_is_the_same_model_without_private_paths_and_data(hub: Hub, run: Path, pushed: str) -> None:
    oid, files = hub.commits["me/tagger"][-1]
    assert pushed == f"hf:me/tagger@{oid}"
    assert sorted(files) == sorted([
        ".gitattributes", "README.md", "config.json", "labels.json", "manifest.json", "model.safetensors",
        "recipe.toml", "tokenizer.json",
        *(f"origins/0/{name}" for name in (
            "config.json", "manifest.json", "model.safetensors", "recipe.toml", "tokenizer.json")),
    ])  # fmt: skip
    for name, content in files.items():
        assert str(run.parent).encode() not in content, name
        assert b"A line of the data" not in content
    assert files["model.safetensors"] == (run / "model.safetensors").read_bytes()
    assert sentences(load(pushed)) == sentences(load(run))
    assert sentences(load("hf:me/tagger")) == sentences(load(run))
    assert RunDirectory(pushed).argument == pushed


def test_the_card_has_the_front_matter_that_the_hub_reads(hub: Hub, run: Path, pushed: str) -> None:
    text = hub.commits["me/tagger"][-1][1]["README.md"].decode()
    data = huggingface_hub.ModelCard(text).data
    assert (data.library_name, data.pipeline_tag, data.license, data.language) == (
        "ensue", "token-classification", "mit", "en"
    )  # fmt: skip
    assert data.tags == ["ensue", "labeling"]
    assert data.model_name == "tagger"
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    best = [each for each in records if each["kind"] == "valid" and each["best"]][-1]["scores"]
    scores = {each.metric_type: each.metric_value for each in data.eval_results}
    assert scores == {name: value for name, value in best.items() if isinstance(value, float)} != {}
    assert {(each.dataset_name, each.dataset_split) for each in data.eval_results} == {("names.txt", "validation")}
    body = huggingface_hub.ModelCard(text).text
    assert body.startswith("\n# tagger\n\nA tagger (lstm 1×8")
    assert "ensue predict hf:me/tagger FILE > labeled" in body
    assert "model = ensue.load('hf:me/tagger')" in body
    assert "ensue train recipe.toml --out ANOTHER" in body
    assert "- training: `names.txt` (columns)" in body
    assert "- origin: `origins/0`" in body
    assert "metrics.jsonl" not in body
    assert "## Sample" not in body


def test_keys_of_an_existing_card_stay_and_a_license_is_required(hub: Hub, run: Path, tmp_path: Path) -> None:
    run_copy = shutil.copytree(run, tmp_path / "own")
    with pytest.raises(RunError, match=r"own: no license in the model card; expected license, such as mit$"):
        push(run_copy, "me/own")
    assert "me/own" not in hub.commits
    card = (run_copy / "README.md").read_text()
    (run_copy / "README.md").write_text(f"---\nlicense: cc0-1.0\nlanguage: nl\nwidget: [text: Ann]\n---\n{card}")
    push(run_copy, "me/own", license="mit", private=True)
    data = huggingface_hub.ModelCard(hub.commits["me/own"][-1][1]["README.md"].decode()).data
    assert (data.license, data.language, data.widget, data.library_name) == (
        "cc0-1.0", "nl", [{"text": "Ann"}], "ensue"
    )  # fmt: skip
    assert hub.private["me/own"]
    (run_copy / "README.md").write_text("---\n[\n---\n")
    with pytest.raises(RunError, match=r"README\.md: invalid metadata of the card \(while parsing"):
        push(run_copy, "me/own", license="mit")


def test_a_revision_stays_after_newer_commits(
    hub: Hub, run: Path, pushed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sentences(load("hf:me/tagger"))
    _, files = hub.commits["me/tagger"][-1]
    newer = hub.commit("me/tagger", {"config.json": files["config.json"] + b" "})
    assert sentences(load(pushed)) == first
    with pytest.raises(RunError, match=rf"hf:me/tagger@{newer}: config\.json: .* bytes, expected"):
        load("hf:me/tagger")
    forbid_downloads(monkeypatch)
    hub.requests.clear()
    assert sentences(load(pushed)) == first
    with pytest.raises(RunError, match=rf"^hf:me/tagger@{newer}: config\.json: not on this machine; with HF_HUB_OFFL"):
        load("hf:me/tagger")  # the newer commit
    assert hub.requests == []


def test_offline_the_cached_commit_is_used(hub: Hub, run: Path, pushed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = sentences(load("hf:me/tagger"))
    hub.fault = "503"
    with pytest.warns(Notice, match=rf"answered with status 503; using the cached files of the commit {pushed[-40:]}$"):
        assert sentences(load("hf:me/tagger")) == expected
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert sentences(load("hf:me/tagger")) == expected  # a notice is shown once
    forbid_downloads(monkeypatch)
    assert sentences(load("hf:me/tagger")) == expected
    with pytest.raises(RunError, match=r"^hf:me/other: not on this machine; with HF_HUB_OFFLINE=0 it is downloaded$"):
        load("hf:me/other")
    with pytest.raises(RunError, match=r"^hf:me/x: this process is offline; HF_HUB_OFFLINE=0 permits uploads$"):
        push(run, "me/x", license="mit")


def test_imports_and_uploads_do_not_permit_downloads(
    hub: Hub, run: Path, pushed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """huggingface_hub would be online if other code had imported it before."""
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with pytest.raises(RunError, match="not on this machine"):
        load(pushed)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    location = push(run, "me/unsaid", license="mit")
    hub.requests.clear()
    with pytest.raises(RunError, match="not on this machine"):
        load(location)
    assert hub.requests == []


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("404", r"manifest\.json: not found, or access denied \(status 404\): authenticate with HF_TOKEN"),
        pytest.param("401", r"manifest\.json: not found, or access denied \(status 401\)", marks=pytest.mark.slow),
        pytest.param("500", r"manifest\.json: the hub answered with status 500", marks=pytest.mark.slow),
        ("odd commit", r"manifest\.json: not a hub: the response has no commit, or no valid ETag"),
        pytest.param("without manifest.json", r"no manifest\.json in the repository", marks=pytest.mark.slow),
        ("without model.safetensors", r"no model\.safetensors in the repository"),
        ("large", r"model\.safetensors: 1,000,000,000,000 bytes, expected 13,324"),
        ("odd etag", r"model\.safetensors: not a hub"),
        ("other bytes", r"model\.safetensors: the downloaded file differs from manifest\.json; it was deleted"),
        pytest.param("interrupted", r"model\.safetensors: ", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_faulty_server_is_reported_in_one_line_and_leaves_no_incomplete_file(
    hub: Hub, pushed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, message: str
) -> None:
    hub.fault = fault
    with pytest.raises(RunError, match=rf"^hf:me/tagger(@[0-9a-f]{{40}})?: {message}") as raised:
        load("hf:me/tagger")
    assert "\n" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir() if path.name != "kept"] == []
    assert not list((tmp_path / "kept").rglob("snapshots/*/model.safetensors"))
    hub.fault = ""
    assert sentences(load("hf:me/tagger"))


def test_a_server_cannot_choose_paths(hub: Hub, pushed: str, tmp_path: Path) -> None:
    """Files in a manifest that no run has are not requested."""
    files = dict(hub.commits["me/tagger"][-1][1])
    manifest = json.loads(files["manifest.json"])
    odd = (
        "../../x", "/etc/x", "origins/../../x", "origins/0/../../manifest.json", "code.py",
        "origins/00000/manifest.json",
    )  # fmt: skip
    manifest["files"] |= dict.fromkeys(odd, manifest["files"]["labels.json"])
    hub.commit("me/odd", {**files, "manifest.json": json.dumps(manifest).encode(), "code.py": files["labels.json"]})
    hub.requests.clear()
    assert sentences(load("hf:me/odd"))
    assert not [line for line in hub.requests if ".." in line or "/etc/" in line or "code.py" in line]
    for content in (b"{", b"[]", json.dumps({"files": {"labels.json": {"bytes": -1}}}).encode(), b"{}" * (1 << 20)):
        hub.commit("me/odd", {"manifest.json": content})
        for _ in range(2):  # not cached
            with pytest.raises(RunError, match=r"^hf:me/odd(@[0-9a-f]{40})?: .*manifest\.json: "):
                load("hf:me/odd")


def test_runs_nested_too_deep_are_refused(hub: Hub) -> None:
    """Each manifest names another one in a subfolder; without a bound, a repository could cause endless requests."""
    files: dict[str, bytes] = {}
    content = b'{"files": {}}'
    for depth in range(30, -1, -1):
        files["origins/0/" * depth + "manifest.json"] = content
        entry = {
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "written": "2026-01-01T00:00:00Z",
        }
        content = json.dumps({"files": {"origins/0/manifest.json": entry}}).encode()
    hub.commit("me/deep", files)
    with pytest.raises(RunError, match=r"^hf:me/deep@[0-9a-f]{40}: runs nested more than 8 levels deep$"):
        load("hf:me/deep")


def test_invalid_pushes_are_refused_before_any_request(
    hub: Hub, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunError, match="expected a name without a revision"):
        push(run, "me/x@v1", license="mit")
    with pytest.raises(RunError, match=r"^hf:me/x: out names a directory; `ensue push RUN NAME` uploads a run$"):
        train("char-lstm", train="text.txt", out="hf:me/x")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ensue.extensions.experiments.search.check_optuna", lambda: None)
    with pytest.raises(RunError, match=r"^hf:me/x: out names a directory"):
        search(read_recipe("char-lstm"), {}, "hf:me/x", trials=1)
    assert not (tmp_path / "hf:me").exists()
    damaged = shutil.copytree(run, tmp_path / "damaged")
    (damaged / "labels.json").write_text("{}")
    with pytest.raises(RunError, match=r"labels\.json: damaged"):
        push(damaged, "me/x", license="mit")
    assert hub.requests == []


PATHS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0`", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1
)


@given(PATHS, PATHS)
@example(".", "a b/'c'\"d\\\\e.txt")
@example("run", "$x/(y)*.txt")
@example("=", "0")
@example("/", "0")
@example("e/", "0")
def test_a_card_has_no_path_of_this_machine(path: str, data: str) -> None:
    """For any characters in the path; equal words of the text stay."""
    data = f"/home/{data}"
    card = """# name

A run of a . in a table | . | run

- training: `{data}` (tsv), 10% of {data}

## Use

```
echo "The bill ." | ensue predict {quoted}
ensue predict {quoted} FILE > labeled
```

```python
model = ensue.load({path!r})
```

## Repeat

```
ensue train {quoted}/recipe.toml --out ANOTHER
```
"""
    written = card.format(path=path, quoted=shlex.quote(path), data=data)
    expected = card.format(path="hf:me/x", quoted="hf:me/x", data="DATA").replace("hf:me/x/recipe", "recipe")
    expected = expected.replace("# name", "# x").replace("## Use\n", f"## Use\n\n{INSTALLATION}\n")
    assert make_card_text(written, Path("/nowhere/at/all"), "hf:me/x", {data: "DATA"}) == expected


@pytest.mark.parametrize("status", ["401", "403", "500", "none"])
def test_a_refused_upload_is_reported_in_one_line(
    hub: Hub, run: Path, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    if status == "none":
        monkeypatch.delenv("HF_TOKEN")
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", "/nowhere")
    else:
        hub.fault = status
    message = "the hub answered with status 500" if status == "500" else r"not found, or access denied .*HF_TOKEN"
    with pytest.raises(RunError, match=rf"^hf:me/refused: {message}"):
        push(run, "me/refused", license="mit")
    assert "me/refused" not in hub.commits


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.extensions.hub.repository.find_spec", lambda name: None)
    with pytest.raises(EnsueError, match=r"^hf:me/x needs the package huggingface_hub: pip install 'ensue\[hub\]'$"):
        load("hf:me/x")


def test_commands_read_and_push_runs_of_the_hub(
    hub: Hub,
    run: Path,
    pushed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ensue: Ensue,
    refused: Callable[..., str],
) -> None:
    result = ensue("push", run, "me/again", "--license", "mit")
    assert (result.status, result.out) == (0, "")
    location = re.search(r"uploaded (hf:me/again@[0-9a-f]{40}); try\n  HF_HUB_OFFLINE=0 ensue predict ", result.err)
    assert location, result.err
    texts = tmp_path / "texts.txt"
    texts.write_text("Ann saw London\n")
    expected = ensue("predict", run, texts, "--json")
    assert ensue("predict", location[1], texts, "--json").out == expected.out != ""
    assert refused("predict", "hf:me/missing", texts).startswith("hf:me/missing: manifest.json: not found")
    assert refused("push", run, "me/third").endswith("no license in the model card; expected --license, such as mit")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("typer.prompt", lambda question, err: "cc0-1.0")
    assert ensue("push", run, "me/third").status == 0
    assert b"license: cc0-1.0" in hub.commits["me/third"][-1][1]["README.md"]
    assert refused("train", "char-lstm", "--train", texts, "--out", "hf:me/x").startswith("hf:me/x: --out names a dir")


@pytest.mark.slow
def test_an_inspection_page_has_the_name_of_the_repository(hub: Hub, run: Path, tmp_path: Path, ensue: Ensue) -> None:
    page = tmp_path / "page.html"
    assert ensue("inspect", "hf:me/tagger", "Ann", "--out", page, "--beside", run).status == 0
    assert ">tagger<" in page.read_text()


@pytest.mark.slow
def test_a_run_that_starts_from_a_run_of_the_hub_contains_a_copy(
    hub: Hub, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it does not need the hub afterwards."""
    location = push(run / "origins" / "0", "me/origin", license="mit")
    (tmp_path / "names.txt").write_text("Ann B-PER\nsaw O\nLondon B-LOC\n\nBob B-PER\nsleeps O\n\n" * 9)
    settings = {
        "features.contextual": [location], "encoder.d_model": 8, "train.steps": 2, "train.validations": 1,
        "features.min_count": 1, "features.characters": "none",
    }  # fmt: skip
    options = {"train": tmp_path / "names.txt", "out": tmp_path / "run", "threads": 1, "device": "cpu"}
    tagger = train("tag-lstm", settings=settings, **options)
    forbid_downloads(monkeypatch)
    shutil.rmtree(tmp_path / "kept")
    assert sentences(load(tmp_path / "run")) == sentences(tagger)
    assert RunDirectory(tmp_path / "run").config["origins"][0]["path"] == location


@pytest.mark.slow
def test_separate_processes_download_only_with_permission(server: Hub, run: Path, tmp_path: Path) -> None:
    """huggingface_hub reads HF_HUB_OFFLINE on import, so each case needs a process."""
    server.fault = ""
    env = {
        "HF_ENDPOINT": server.address, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1",
        "ENSUE_CACHE": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1",
    }  # fmt: skip

    def ensue_of(*arguments: object, **more: str) -> Any:
        command = [sys.executable, "-m", "ensue", *map(str, arguments)]
        return subprocess.run(command, env=env | more, capture_output=True, text=True, input="Ann\n", check=False)

    result = ensue_of("push", run, "me/process", "--license", "mit", HF_TOKEN=server.token)
    assert result.returncode == 0, result.stderr
    num_requests = len(server.requests)
    result = ensue_of("predict", "hf:me/process")
    assert (result.returncode, result.stderr) == (
        2, "ensue: hf:me/process: not on this machine; with HF_HUB_OFFLINE=0 it is downloaded\n"
    )  # fmt: skip
    assert len(server.requests) == num_requests
    downloaded = ensue_of("predict", "hf:me/process", HF_HUB_OFFLINE="0")
    assert downloaded.returncode == 0, downloaded.stderr
    num_requests = len(server.requests)
    from_cache = ensue_of("predict", "hf:me/process")
    assert (from_cache.returncode, from_cache.stdout) == (0, downloaded.stdout)
    assert len(server.requests) == num_requests
    assert ensue_of("push", run, "me/process", "--license", "mit", HF_HUB_OFFLINE="1").stderr == (
        "ensue: hf:me/process: this process is offline; HF_HUB_OFFLINE=0 permits uploads\n"
    )


def published_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a repository with a small BERT, and with a program that must not be downloaded."""
    tokenizer = wordpiece()
    write_bert(folder, Bert.random(tokenizer.get_vocab_size()), tokenizer)
    (folder / "modules.json").write_text('[{"type": "models.Transformer", "path": ""}, {"type": "models.Normalize"}]')
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {**files, "model.py": b"raise SystemExit", "1_Pooling/config.json": b"{}"}


@pytest.mark.slow
def test_a_published_model_is_imported_by_its_name(
    hub: Hub, tmp_path: Path, ensue: Ensue, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = published_files(tmp_path / "bert")
    commit = hub.commit("they/bert", files)
    assert "from bert" in ensue("import", "hf:they/bert", "--out", tmp_path / "run").err
    assert not any("model.py" in request for request in hub.requests)
    import_run(tmp_path / "bert", tmp_path / "same")
    run, same = RunDirectory(tmp_path / "run"), RunDirectory(tmp_path / "same")
    assert run.weights.read_bytes() == same.weights.read_bytes()
    assert run.config["imported"]["path"] == f"hf:they/bert@{commit}"
    assert run.recipe.about == "imported from bert"
    assert run.recipe.sentences.unit_length
    hub.requests.clear()
    forbid_downloads(monkeypatch)
    import_run("hf:they/bert", tmp_path / "again")
    assert not hub.requests
    with pytest.raises(RunError, match="not on this machine"):
        import_run("hf:they/other", tmp_path / "other")


@pytest.mark.slow
def test_weights_of_a_repository_may_be_in_several_files(hub: Hub, tmp_path: Path) -> None:
    files = published_files(tmp_path / "bert")
    weights = files.pop("model.safetensors")
    hub.commit("they/parts", {**files, "model.safetensors.index.json": b'{"weight_map": {"a": "../b"}}'})
    with pytest.raises(DataError, match=r"file names without folders, found '../b'"):
        import_run("hf:they/parts", tmp_path / "run")
    hub.commit("they/parts", {"model.safetensors.index.json": b'{"weight_map": {"a": "part-1.safetensors"}}'})
    with pytest.raises(RunError, match=r"no part-1\.safetensors in the repository"):
        import_run("hf:they/parts", tmp_path / "run")
    hub.commit("they/parts", {"part-1.safetensors": weights})
    import_run("hf:they/parts", tmp_path / "run")
    assert RunDirectory(tmp_path / "run").config["imported"]["files"][0]["file"] == "part-1.safetensors"
