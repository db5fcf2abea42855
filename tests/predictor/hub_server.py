"""The part of the Hugging Face Hub's API that pushing and loading a predictor needs."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_of_these_tests"


class Hub(ThreadingHTTPServer):
    """Repositories in memory: the files of each commit, and the last commit of each branch."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, str]] = {}
        self.commits: dict[str, dict[str, bytes]] = {}
        self.settings: list[dict[str, Any]] = []
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def files(self, name: str, revision: str = "main") -> dict[str, bytes]:
        return self.commits[self.repositories[name].get(revision, revision)]

    def commit(self, name: str, files: dict[str, bytes], branch: str = "main") -> str:
        content = json.dumps({path: each.hex() for path, each in files.items()})
        oid = hashlib.sha1(f"{len(self.commits)} {content}".encode()).hexdigest()
        self.commits[oid] = files
        self.repositories.setdefault(name, {})[branch] = oid
        return oid


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0].strip("/").replace("%2F", "/")
        if not path:
            return self.answer(200, {})
        if path.startswith("api/models/"):
            owner, name, *_ = path.split("/")[2:]
            if (
                files := self.found(f"{owner}/{name}", (path.split("/")[5:] or ["main"])[0])
            ) is None:
                return None
            listed = [
                {"type": "file", "path": p, "size": len(c), "oid": hashlib.sha1(c).hexdigest()}
                for p, c in files.items()
            ]
            return self.answer(200, listed)
        if path.count("/") < 4:
            return self.answer(404, {})
        owner, name, _, revision, *rest = path.split("/")
        if (files := self.found(f"{owner}/{name}", revision)) is None:
            return None
        wanted = "/".join(rest)
        if wanted not in files:
            return self.answer(404, {}, {"X-Error-Code": "EntryNotFound"})
        commit = self.server.repositories[f"{owner}/{name}"].get(revision, revision)
        tag = hashlib.sha1(files[wanted]).hexdigest()
        return self.answer(200, files[wanted], {"X-Repo-Commit": commit, "ETag": f'"{tag}"'})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        path = self.path.strip("/")
        if path == "api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer(401, {"error": "Invalid credentials"})
        if path == "api/repos/create":
            settings = json.loads(body)
            name = f"{settings['organization']}/{settings['name']}"
            if settings["organization"] == "somebody-else":
                return self.answer(403, {"error": "You don't have the rights"})
            exists = name in self.server.repositories
            if not exists:
                self.server.settings.append(settings)
                self.server.commit(name, {".gitattributes": b""})
            return self.answer(409 if exists else 200, {"url": f"{self.server.url}/{name}"})
        owner, name, action, revision = path.split("/")[2:]
        branches = self.server.repositories[f"{owner}/{name}"]
        if action == "branch":
            exists = revision in branches
            branches.setdefault(revision, branches["main"])
            return self.answer(409 if exists else 200, {})
        if action == "preupload":
            files = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            return self.answer(200, {"files": files})
        content = dict(self.server.files(f"{owner}/{name}", revision))
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                content[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "deletedFile":
                del content[value["path"]]
        oid = self.server.commit(f"{owner}/{name}", content, revision)
        url = f"{self.server.url}/{owner}/{name}/commit/{oid}"
        return self.answer(200, {"success": True, "commitOid": oid, "commitUrl": url})

    def found(self, name: str, revision: str) -> dict[str, bytes] | None:
        try:
            return self.server.files(name, revision)
        except KeyError:
            known = name in self.server.repositories
            code = "RevisionNotFound" if known else "RepoNotFound"
            self.answer(404, {}, {"X-Error-Code": code})
            return None

    def answer(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub on this machine."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
