"""The hub of Hugging Face: what `hf:NAME` names, and files from there.

A request leaves this machine only if HF_HUB_OFFLINE=0 allows it, or to upload. The package huggingface_hub keeps the
files in its cache, by the commit that they belong to. None of them is executed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Any, NamedTuple, Self

from ensue.errors import EnsueError, MissingFileError, RunError, in_one_line
from ensue.notices import say_once

PREFIX = "hf:"
MAIN = "main"
"""The branch of a name without a revision."""
NOT_HERE = "not on this machine; with HF_HUB_OFFLINE=0 it is downloaded"
_SWITCH = "HF_HUB_OFFLINE"
_COMMIT = re.compile("[0-9a-f]{40}")
_PLAIN = re.compile(r"\w[\w-]*")
"""Matches the name under which content may be kept; a server could send one that leads out of the cache."""


def stay_offline() -> None:
    """Keeps the packages of Hugging Face, which read this when they are imported, from the network, unless allowed."""
    os.environ.setdefault(_SWITCH, "1")


class Repository(NamedTuple):
    """A repository of the hub, and a branch, a tag or a commit of it."""

    name: str
    revision: str = MAIN

    @classmethod
    def parse(cls, location: str | Path) -> Self | None:
        """The repository of `hf:NAME` or `hf:NAME@REVISION`; None for a path. Raises RunError for a wrong name."""
        text = location.as_posix() if isinstance(location, PurePath) else location
        if not text.startswith(PREFIX):
            return None
        found = re.fullmatch(rf"{PREFIX}(?!.*\.\.)([\w./-]+)(?:@(\w[\w./-]*))?", text)
        if found is None:
            raise RunError(f"{text}: expected such as hf:NAME or hf:NAME@REVISION")
        return cls(found[1], found[2] or MAIN)

    def __str__(self) -> str:
        return f"{PREFIX}{self.name}" + f"@{self.revision}" * (self.revision != MAIN)

    def file(self, name: str, *, size: int | None = None, most: int | None = None) -> Path:
        """A file, which is downloaded if it is not kept. It has `size` bytes, or `most` of them at most.

        Raises MissingFileError if it is not there, RunError if it cannot be loaded.
        """
        hub = self.package()
        with self.told(name):
            is_offline = hub.constants.HF_HUB_OFFLINE or os.environ[_SWITCH].upper() in ("1", "ON", "YES", "TRUE")
            found = hub.try_to_load_from_cache(self.name, name, revision=self.revision)
            kept = Path(found) if isinstance(found, str) else None
            if kept and (is_offline or _COMMIT.fullmatch(self.revision)):
                return kept
            if is_offline:
                raise MissingFileError(f"{self}: {f'{name}: ' * bool(_COMMIT.fullmatch(self.revision))}{NOT_HERE}")
            try:
                head = hub.get_hf_file_metadata(hub.hf_hub_url(self.name, name, revision=self.revision))
            except (hub.errors.HfHubHTTPError.__bases__[0], OSError) as error:  # the error of its HTTP library
                if kept is None or _status(error) not in (None, *range(500, 600)):
                    raise
                say_once(f"hub {self}", f"{self}: {_reason(error)}; what is kept is of the commit {kept.parent.name}")
                return kept
            if not (_COMMIT.fullmatch(head.commit_hash or "") and _PLAIN.fullmatch(head.etag or "")):
                raise RunError(f"{self}: {name}: the server is no hub: it says no commit, or no ETag of one word")
            if head.size is not None and (head.size != size if most is None else head.size > most):
                expected = f"{size:,}" if most is None else f"at most {most:,}"
                raise RunError(f"{self}: {name}: {head.size:,} bytes, expected {expected}")
            return Path(hub.hf_hub_download(self.name, name, revision=self.revision))

    def package(self, *, uploads: bool = False) -> Any:
        """The package huggingface_hub. Raises EnsueError without it, and RunError to upload in an offline process."""
        if find_spec("huggingface_hub") is None:
            raise EnsueError(f"{self} needs the package huggingface_hub: pip install 'ensue[hub]'")
        if was_unsaid := uploads and _SWITCH not in os.environ:
            os.environ[_SWITCH] = "0"  # as it is imported
        stay_offline()
        hub = import_module("huggingface_hub")
        for part in ("constants", "errors", "utils"):  # which it imports late
            import_module(f"huggingface_hub.{part}")
        if was_unsaid:  # to upload allows no download
            os.environ[_SWITCH] = "1"
        hub.utils.logging.set_verbosity_error()
        if not (sys.stderr and sys.stderr.isatty()):
            hub.utils.disable_progress_bars()
        if uploads and hub.constants.HF_HUB_OFFLINE:
            raise RunError(f"{self}: this process is offline; with HF_HUB_OFFLINE=0 it is uploaded")
        return hub

    @contextmanager
    def told(self, name: str = "") -> Iterator[None]:
        """Turns an error of the package, about the file `name`, into a RunError of one line."""
        errors = import_module("huggingface_hub.errors")
        try:
            yield
        except EnsueError:
            raise
        except errors.RevisionNotFoundError:
            raise RunError(f'{PREFIX}{self.name}: no revision "{self.revision}"') from None
        except Exception as error:  # of many kinds, also where a server answers nonsense
            if isinstance(error, errors.EntryNotFoundError) and _status(error) is not None:
                raise MissingFileError(f"{self}: no {name or 'such file'} in the repository") from None
            raise RunError(f"{self}: {f'{name}: ' * bool(name)}{_reason(error)}") from None


def run_name(path: str | Path) -> str:
    """The name of a run for people: that of its folder, or of its repository."""
    if (repository := Repository.parse(path)) is not None:
        return repository.name.rpartition("/")[2]
    folder = Path(path).resolve()
    repository_folder = folder.parent.parent.name
    is_kept = folder.parent.name == "snapshots" and repository_folder.startswith("models--")
    return repository_folder.rpartition("--")[2] if is_kept else folder.name


def _status(error: BaseException) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


def _reason(error: BaseException) -> str:
    """The first cause of an error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    if (status := _status(error)) in (401, 403, 404):
        return f"not found, or not for you (status {status}): HF_TOKEN, or `hf auth login`, says who you are"
    if status is not None:
        return f"the hub answers with status {status}"
    said = " ".join(str(error).split()) or type(error).__name__
    return f"the hub cannot be used ({in_one_line(said)[:200]})"
