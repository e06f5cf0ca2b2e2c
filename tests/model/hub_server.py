"""A stand-in for the HTTP API of the Hugging Face Hub on loopback: what huggingface_hub asks to write and read a model.

Files of safetensors and those of a megabyte or more are uploaded by LFS, in one part or, above `PART` bytes, in
several; others are in the commit. Repositories, branches and LFS objects are kept in memory. Xet is not there.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

__all__ = ["Hub", "Repository", "serve_hub"]

WRITES, READS = "hf_writes", "hf_reads"
"""A token that may write, and one that may only read."""

PART = 40_000
"""Bytes of a part of an upload."""


@dataclass
class Repository:
    """Branches, each a list of commits; a commit is a tree of files."""

    private: bool = False
    gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    by_lfs: set[str] = field(default_factory=set)
    """Names of files that were uploaded by LFS."""

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        content = json.dumps([branch, len(self.commits), sorted(files)]).encode()
        name = hashlib.sha1(content).hexdigest()
        self.commits[name] = files
        self.branches[branch] = name
        return name

    def files(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        name = self.branches.get(revision, revision)
        return (name, self.commits[name]) if name in self.commits else None


@dataclass
class Hub:
    """All that the server holds, and what it was asked."""

    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    """LFS objects by their SHA-256."""
    parts: dict[tuple[str, int], bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """Method and path of each request."""
    token: str | None = None
    """Token of the last request."""


class _Refusal(Exception):
    def __init__(self, status: int, code: str, message: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message or code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle_any(self) -> None:
        split = urlsplit(self.path)
        path, query = unquote(split.path), parse_qs(split.query)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        hub = self.hub
        hub.asked.append(f"{self.command} {path}")
        hub.token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        for method, pattern, handle in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in method.split():
                try:
                    handle(self, *match.groups(), query=query, body=body)
                except _Refusal as refusal:
                    self.reply(
                        {"error": refusal.message},
                        refusal.status,
                        {"X-Error-Code": refusal.code, "X-Error-Message": refusal.message},
                    )
                return
        self.reply({"error": f"no such endpoint: {self.command} {path}"}, 501)

    do_GET = do_HEAD = do_POST = do_PUT = handle_any

    def reply(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def repository(self, name: str, *, to_write: bool = False) -> Repository:
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and self.hub.token not in (WRITES, READS)):
            raise _Refusal(401 if self.hub.token is None else 404, "RepoNotFound", "Repository not found")
        if repository.gated and self.hub.token != WRITES:
            raise _Refusal(403, "GatedRepo", "Access to this model is restricted")
        if to_write:
            self.check_writes()
        return repository

    def check_writes(self) -> None:
        if self.hub.token is None:
            raise _Refusal(401, "", "Invalid username or password.")
        if self.hub.token != WRITES:
            raise _Refusal(403, "", "You don't have the rights to write here")


def _create(handler: _Handler, *, query: Any, body: bytes) -> None:
    handler.check_writes()
    wanted = json.loads(body)
    name = f"{wanted['organization']}/{wanted['name']}"
    url = {"url": f"{handler.hub.address}/{name}"}
    if name in handler.hub.repositories:
        return handler.reply(url | {"error": "You already created this model repo"}, 409)
    repository = handler.hub.repositories[name] = Repository(private=wanted.get("visibility") == "private")
    repository.commit("main", {".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"})
    handler.reply(url)


def _validate(handler: _Handler, *, query: Any, body: bytes) -> None:
    content = json.loads(body)["content"]
    match = re.match(r"---\n(.*?)\n---\n", content, re.DOTALL)
    try:
        assert match is not None
        assert isinstance(yaml.safe_load(match[1]), dict)
    except (AssertionError, yaml.YAMLError) as error:
        return handler.reply({"errors": [{"message": str(error)}], "warnings": []}, 400)
    handler.reply({"errors": [], "warnings": []})


def _branch(handler: _Handler, name: str, branch: str, *, query: Any, body: bytes) -> None:
    repository = handler.repository(name, to_write=True)
    if branch in repository.branches:
        return handler.reply({"error": "Reference already exists"}, 409)
    repository.branches[branch] = repository.branches["main"]
    handler.reply({})


def _at(repository: Repository, revision: str) -> tuple[str, dict[str, bytes]]:
    files = repository.files(revision)
    if files is None:
        raise _Refusal(404, "RevisionNotFound", "Invalid rev id: " + revision)
    return files


def _is_lfs(name: str, size: int) -> bool:
    return name.endswith(".safetensors") or size >= 1_000_000


def _tree(handler: _Handler, name: str, revision: str, *, query: Any, body: bytes) -> None:
    _, files = _at(handler.repository(name), revision)
    handler.reply(
        [
            {"type": "file", "path": path, "size": len(raw), "oid": hashlib.sha1(raw).hexdigest()}
            for path, raw in files.items()
        ]
    )


def _info(handler: _Handler, name: str, revision: str | None, *, query: Any, body: bytes) -> None:
    repository = handler.repository(name)
    commit, files = _at(repository, revision or "main")
    handler.reply({"id": name, "sha": commit, "siblings": [{"rfilename": path} for path in files], "tags": []})


def _preupload(handler: _Handler, name: str, revision: str, *, query: Any, body: bytes) -> None:
    _, there = _at(handler.repository(name, to_write=True), revision)
    answers = []
    for entry in json.loads(body)["files"]:
        lfs = _is_lfs(entry["path"], entry["size"])
        raw = there.get(entry["path"])
        oid = None if raw is None else hashlib.sha256(raw).hexdigest() if lfs else _git_hash(raw)
        mode = "lfs" if lfs else "regular"
        answers.append({"path": entry["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
    handler.reply({"files": answers})


def _git_hash(raw: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()


def _batch(handler: _Handler, name: str, *, query: Any, body: bytes) -> None:
    handler.repository(name, to_write=True)
    wanted = json.loads(body)
    assert wanted["operation"] == "upload"
    assert wanted["hash_algo"] == "sha256"
    answers = []
    for entry in wanted["objects"]:
        oid, size = entry["oid"], entry["size"]
        answer: dict[str, Any] = {"oid": oid, "size": size}
        if oid not in handler.hub.objects:
            here = handler.hub.address
            upload: dict[str, Any] = {"href": f"{here}/lfs/{oid}"}
            if size > PART:
                count = -(-size // PART)
                urls = {str(part + 1): f"{here}/lfs/{oid}/{part + 1}" for part in range(count)}
                upload = {"href": f"{here}/lfs-complete/{oid}", "header": {"chunk_size": str(PART), **urls}}
            answer["actions"] = {"upload": upload, "verify": {"href": f"{here}/lfs-verify/{oid}"}}
        answers.append(answer)
    handler.reply({"transfer": "multipart", "objects": answers})


def _upload(handler: _Handler, oid: str, part: str | None, *, query: Any, body: bytes) -> None:
    assert handler.hub.token is None  # the token is for the Hub, not for the store
    if part is None:
        _keep(handler.hub, oid, body)
    else:
        handler.hub.parts[oid, int(part)] = body
    handler.reply({}, headers={"ETag": f'"{hashlib.md5(body).hexdigest()}"'})


def _complete(handler: _Handler, oid: str, *, query: Any, body: bytes) -> None:
    parts = [entry["partNumber"] for entry in json.loads(body)["parts"]]
    _keep(handler.hub, oid, b"".join(handler.hub.parts[oid, part] for part in parts))
    handler.reply({})


def _keep(hub: Hub, oid: str, raw: bytes) -> None:
    if hashlib.sha256(raw).hexdigest() != oid:
        raise _Refusal(400, "", "the content is not that of the hash")
    hub.objects[oid] = raw


def _verify(handler: _Handler, oid: str, *, query: Any, body: bytes) -> None:
    size = json.loads(body)["size"]
    if len(handler.hub.objects.get(oid, b"")) != size:
        raise _Refusal(404, "", "no such object of this size")
    handler.reply({})


def _commit(handler: _Handler, name: str, branch: str, *, query: Any, body: bytes) -> None:
    repository = handler.repository(name, to_write=True)
    head, before = _at(repository, branch)
    files = dict(before)
    for line in body.splitlines():
        entry = json.loads(line)
        value = entry["value"]
        if entry["key"] == "file":
            files[value["path"]] = base64.b64decode(value["content"])
        elif entry["key"] == "lfsFile":
            if value["oid"] not in handler.hub.objects:
                raise _Refusal(400, "", "LFS pointer to an object that does not exist")
            files[value["path"]] = handler.hub.objects[value["oid"]]
            repository.by_lfs.add(value["path"])
        elif entry["key"] == "deletedFile":
            del files[value["path"]]
        else:
            assert entry["key"] == "header"
            if value.get("parentCommit", head) != head:
                raise _Refusal(412, "", "A commit has happened since. Please refresh and try again.")
    commit = repository.commit(branch, files)
    handler.reply({"commitUrl": f"{handler.hub.address}/{name}/commit/{commit}", "commitOid": commit})


def _resolve(handler: _Handler, name: str, revision: str, path: str, *, query: Any, body: bytes) -> None:
    commit, files = _at(handler.repository(name), revision)
    if path not in files:
        raise _Refusal(404, "EntryNotFound", "Entry not found")
    raw, headers = files[path], {"X-Repo-Commit": commit}
    if not _is_lfs(path, len(raw)):
        return handler.reply(raw, headers=headers | {"ETag": f'"{_git_hash(raw)}"'})
    oid = hashlib.sha256(raw).hexdigest()
    store = handler.hub.address.replace("127.0.0.1", "localhost")  # another host, as the Hub's store is
    place = {
        "Location": f"{store}/cdn/{oid}",
        "X-Linked-Size": str(len(raw)),
        "X-Linked-Etag": f'"{oid}"',
    }
    handler.reply(b"", 302, headers | place)


def _cdn(handler: _Handler, oid: str, *, query: Any, body: bytes) -> None:
    assert handler.hub.token is None
    handler.reply(handler.hub.objects[oid], headers={"ETag": f'"{oid}"'})


_NAME = r"([^/]+/[^/]+)"
ROUTES: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/api/repos/create", _create),
    ("POST", "/api/validate-yaml", _validate),
    ("POST", rf"/api/models/{_NAME}/branch/(.+)", _branch),
    ("POST", rf"/api/models/{_NAME}/preupload/(.+)", _preupload),
    ("POST", rf"/api/models/{_NAME}/commit/(.+)", _commit),
    ("GET", rf"/api/models/{_NAME}/tree/([^/]+)/?", _tree),
    ("GET", rf"/api/models/{_NAME}(?:/revision/(.+))?", _info),
    ("POST", rf"/{_NAME}\.git/info/lfs/objects/batch", _batch),
    ("PUT", r"/lfs/([0-9a-f]{64})(?:/(\d+))?", _upload),
    ("POST", r"/lfs-complete/([0-9a-f]{64})", _complete),
    ("POST", r"/lfs-verify/([0-9a-f]{64})", _verify),
    ("GET HEAD", r"/cdn/([0-9a-f]{64})", _cdn),
    ("GET HEAD", rf"/{_NAME}/resolve/([^/]+)/(.+)", _resolve),
)


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """Run the server on a free port of loopback."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
