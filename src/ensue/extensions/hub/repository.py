"""Repositories of the Hugging Face Hub and their files. The address of a repository is `hf:NAME` or `hf:NAME@REVISION`.

Requests are sent only for an upload, or if the environment variable HF_HUB_OFFLINE is 0. The package huggingface_hub
caches the files by commit. No downloaded code is executed.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Self

from ensue.errors import EnsueError, MissingFileError, RunError, to_one_line
from ensue.notices import warn_once

PREFIX = "hf:"
MAIN = "main"
"""The branch of an address without a revision."""
NOT_CACHED = "not on this machine; with HF_HUB_OFFLINE=0 it is downloaded"
_OFFLINE_VARIABLE = "HF_HUB_OFFLINE"
_COMMIT = re.compile("[0-9a-f]{40}")
_SAFE_ETAG = re.compile(r"\w[\w-]*")
"""The pattern of ETags that are safe file names, since huggingface_hub caches a file under its ETag."""


def stay_offline() -> None:
    """Set HF_HUB_OFFLINE to 1 if it is not set. Hugging Face's packages read the variable when they are imported."""
    os.environ.setdefault(_OFFLINE_VARIABLE, "1")


class Repository(NamedTuple):
    """A repository of the hub, and its branch, tag or commit."""

    name: str
    revision: str = MAIN

    @classmethod
    def parse(cls, address: str) -> Self:
        """Return the repository of `hf:NAME` or `hf:NAME@REVISION`. Raise RunError for an invalid address."""
        match = re.fullmatch(rf"{PREFIX}(?!.*\.\.)([\w./-]+)(?:@(\w[\w./-]*))?", address)
        if match is None:
            raise RunError(f"{address}: expected an address such as hf:NAME or hf:NAME@REVISION")
        return cls(match[1], match[2] or MAIN)

    def __str__(self) -> str:
        return f"{PREFIX}{self.name}" + f"@{self.revision}" * (self.revision != MAIN)

    def file(self, name: str, *, size: int | None = None, max_bytes: int | None = None) -> Path:
        """Return the path of a file in the cache, after a download if necessary.

        `name` is the path of the file in the repository, `size` its size in bytes, or `max_bytes` its maximum size.
        Raise MissingFileError if the repository has no such file, or if it is not cached and this process is offline,
        and RunError if the file cannot be downloaded or has another size.
        """
        hub = self.package()
        with self.errors_in_one_line(name):
            variable = os.environ[_OFFLINE_VARIABLE]
            is_offline = hub.constants.HF_HUB_OFFLINE or variable.upper() in ("1", "ON", "YES", "TRUE")
            path = hub.try_to_load_from_cache(self.name, name, revision=self.revision)
            cached = Path(path) if isinstance(path, str) else None
            if cached and (is_offline or _COMMIT.fullmatch(self.revision)):
                return cached
            if is_offline:
                raise MissingFileError(f"{self}: {f'{name}: ' * bool(_COMMIT.fullmatch(self.revision))}{NOT_CACHED}")
            try:
                head = hub.get_hf_file_metadata(hub.hf_hub_url(self.name, name, revision=self.revision))
            except (hub.errors.HfHubHTTPError.__bases__[0], OSError) as error:  # HTTPError of requests or httpx
                if cached is None or _find_status(error) not in (None, *range(500, 600)):
                    raise
                problem, commit = _describe_error(error), cached.parent.name
                warn_once(f"hub {self}", f"{self}: {problem}; using the cached files of the commit {commit}")
                return cached
            if not (_COMMIT.fullmatch(head.commit_hash or "") and _SAFE_ETAG.fullmatch(head.etag or "")):
                raise RunError(f"{self}: {name}: not a hub: the response has no commit, or no valid ETag")
            if head.size is not None and (head.size != size if max_bytes is None else head.size > max_bytes):
                expected = f"{size:,}" if max_bytes is None else f"at most {max_bytes:,}"
                raise RunError(f"{self}: {name}: {head.size:,} bytes, expected {expected}")
            return Path(hub.hf_hub_download(self.name, name, revision=self.revision))

    def package(self, *, uploads: bool = False) -> Any:
        """Import huggingface_hub. Raise EnsueError if it is not installed, and RunError for uploads while offline."""
        if find_spec("huggingface_hub") is None:
            raise EnsueError(f"{self} needs the package huggingface_hub: pip install 'ensue[hub]'")
        if is_unset := uploads and _OFFLINE_VARIABLE not in os.environ:
            os.environ[_OFFLINE_VARIABLE] = "0"  # only during the import
        stay_offline()
        hub = import_module("huggingface_hub")
        for module in ("constants", "errors", "utils"):  # huggingface_hub imports these modules lazily
            import_module(f"huggingface_hub.{module}")
        if is_unset:  # uploads are allowed without the variable, and downloads are not
            os.environ[_OFFLINE_VARIABLE] = "1"
        hub.utils.logging.set_verbosity_error()
        if not (sys.stderr and sys.stderr.isatty()):
            hub.utils.disable_progress_bars()
        if uploads and hub.constants.HF_HUB_OFFLINE:
            raise RunError(f"{self}: this process is offline; HF_HUB_OFFLINE=0 permits uploads")
        return hub

    @contextmanager
    def errors_in_one_line(self, name: str = "") -> Iterator[None]:
        """Replace errors of huggingface_hub about the file `name` by a RunError with one line."""
        errors = import_module("huggingface_hub.errors")
        try:
            yield
        except EnsueError:
            raise
        except errors.RevisionNotFoundError:
            raise RunError(f'{PREFIX}{self.name}: no revision "{self.revision}"') from None
        except Exception as error:  # malformed responses raise errors of many types
            if isinstance(error, errors.EntryNotFoundError) and _find_status(error) is not None:
                raise MissingFileError(f"{self}: no {name or 'such file'} in the repository") from None
            raise RunError(f"{self}: {f'{name}: ' * bool(name)}{_describe_error(error)}") from None


def _find_status(error: BaseException) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


def _describe_error(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    if (status := _find_status(error)) in (401, 403, 404):
        return f"not found, or access denied (status {status}): authenticate with HF_TOKEN or `hf auth login`"
    if status is not None:
        return f"the hub answered with status {status}"
    message = " ".join(str(error).split()) or type(error).__name__
    return f"the hub cannot be used ({to_one_line(message)[:200]})"
