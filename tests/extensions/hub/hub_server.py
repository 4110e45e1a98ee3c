"""A server on 127.0.0.1 with the routes of the hub that huggingface_hub uses, and with optional faults."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

LARGE = ".safetensors"
"""The suffix of files in large file storage (LFS), which a redirect locates."""


class Hub(ThreadingHTTPServer):
    """A hub of models: the commits of each repository, the oldest first, each with all its files."""

    daemon_threads = True

    def __init__(self, token: str = "secret") -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.token = token
        self.commits: dict[str, list[tuple[str, dict[str, bytes]]]] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.private: dict[str, bool] = {}
        self.fault = ""
        """The fault of the server: a status, or the name of a fault of `Handler`."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commit(self, name: str, files: dict[str, bytes]) -> str:
        """Add a commit with new files. Return its name."""
        commits = self.commits.setdefault(name, [])
        all_files = {**(commits[-1][1] if commits else {}), **files}
        description = json.dumps([len(commits), sorted((path, _sha(content)) for path, content in all_files.items())])
        commits.append((hashlib.sha1(description.encode()).hexdigest(), all_files))
        return commits[-1][0]

    def at(self, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """Return a commit by its name, or the newest commit for "main"."""
        commits = self.commits[name]
        return commits[-1] if revision == "main" else next((each for each in commits if each[0] == revision), None)


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._get()

    def do_GET(self) -> None:
        self._get()

    def do_PUT(self) -> None:
        content, oid = self._content(), self.path.rpartition("/")[2]
        assert _sha(content) == oid
        self.server.objects[oid] = content
        self._json({})

    def do_POST(self) -> None:
        self._record_request()
        content, path = self._content(), unquote(self.path)
        if self.server.fault.isdigit():
            self._json({"error": "no"}, int(self.server.fault))
        elif path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self._json({"error": "Invalid username or password."}, 401)
        elif path == "/api/repos/create":
            parameters = json.loads(content)
            name = "/".join(filter(None, (parameters.get("organization") or "me", parameters["name"])))
            status = 409 if name in self.server.commits else 200
            if status == 200:
                self.server.commit(name, {".gitattributes": b""})
                self.server.private[name] = bool(parameters.get("private")) or parameters.get("visibility") == "private"
            self._json({"url": f"{self.server.address}/{name}"}, status)
        elif "/preupload/" in path:
            files = [
                {"path": file["path"], "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                 "shouldIgnore": False}
                for file in json.loads(content)["files"]
            ]  # fmt: skip
            self._json({"files": files})
        elif path.endswith(".git/info/lfs/objects/batch"):
            objects = [
                {**each, "actions": {"upload": {"href": f"{self.server.address}/objects/{each['oid']}"}}}
                for each in json.loads(content)["objects"]
            ]
            self._json({"transfer": "basic", "objects": objects})
        elif "/commit/" in path:
            name = path.removeprefix("/api/models/").partition("/commit/")[0]
            lines = [json.loads(line) for line in content.splitlines()]
            files = {line["value"]["path"]: self._file(line) for line in lines if line["key"] != "header"}
            oid = self.server.commit(name, files)
            url = f"{self.server.address}/{name}/commit/{oid}"
            self._json({"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": ""})
        else:
            self._json({"error": "no such route"}, 404)

    def _file(self, line: dict[str, dict[str, str]]) -> bytes:
        value = line["value"]
        return self.server.objects[value["oid"]] if line["key"] == "lfsFile" else base64.b64decode(value["content"])  # type: ignore[comparison-overlap]

    def _get(self) -> None:
        self._record_request()
        fault, path = self.server.fault, unquote(self.path)
        if fault.isdigit():
            self._json({"error": "no"}, int(fault))
            return
        if path.startswith("/objects/"):
            assert "Authorization" not in self.headers  # another host, which must not receive the token
            self._bytes(self.server.objects[path.removeprefix("/objects/")], {})
            return
        name, _, rest = path.removeprefix("/").partition("/resolve/")
        if name not in self.server.commits:
            self._json({"error": "Repository not found"}, 401, {"X-Error-Code": "RepoNotFound"})
            return
        revision, _, file = rest.partition("/")
        commit_and_files = self.server.at(name, revision)
        if commit_and_files is None:
            self._json({"error": "Invalid rev id"}, 404, {"X-Error-Code": "RevisionNotFound"})
            return
        commit, files = commit_and_files
        headers = {"X-Repo-Commit": "../../../elsewhere" if fault == "odd commit" else commit}
        if file not in files or fault == f"without {file}":
            self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound", **headers})
            return
        content = files[file]
        if file.endswith(LARGE):
            self.server.objects[_sha(content)] = content
            headers |= {"X-Linked-Etag": f'"{_sha(content)}"', "X-Linked-Size": str(len(content))}
            if fault == "large":
                headers["X-Linked-Size"] = str(10**12)
            if fault == "odd etag":
                headers["X-Linked-Etag"] = '"../../../../elsewhere"'
            port = self.server.server_address[1]
            self._bytes(b"", {**headers, "Location": f"http://localhost:{port}/objects/{_sha(content)}"}, 302)
        else:
            self._bytes(content, {**headers, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'})

    def _bytes(self, content: bytes, headers: dict[str, str], status: int = 200) -> None:
        fault, is_large = self.server.fault, self.path.startswith("/objects/")
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if is_large and fault == "other bytes":
            content = bytes(len(content))
        if is_large and fault == "interrupted":
            content = content[: len(content) // 2]
            self.close_connection = True
        self.wfile.write(content)

    def _json(self, value: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._bytes(json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})}, status)

    def _content(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _record_request(self) -> None:
        self.server.requests.append(f"{self.command} {unquote(self.path)}")


@contextmanager
def serving() -> Iterator[Hub]:
    """Run a hub during the `with` block."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
