"""A server that answers as the Hugging Face Hub does, with data sets from a folder.

`FOLDER/OWNER/NAME` is a data set; the file `.gated` in it refuses all requests.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Handler(BaseHTTPRequestHandler):
    root = Path()

    def do_GET(self) -> None:
        parts = urlsplit(self.path).path.strip("/").split("/")
        if parts[0] == "datasets" and parts[3:4] == ["resolve"]:
            self._send_file(self.root / parts[1] / parts[2], unquote(parts[4]), parts[5:])
        elif parts[:2] == ["api", "datasets"] and len(parts) >= 4:
            self._send_about(self.root / parts[2] / parts[3], parts[4:])
        else:
            self._send_error(404, "EntryNotFound")

    do_HEAD = do_POST = do_GET

    def _send_file(self, repository: Path, revision: str, parts: list[str]) -> None:
        if self._is_refused(repository, revision):
            return
        path = repository.joinpath(*parts)
        if not path.is_file():
            self._send_error(404, "EntryNotFound")
            return
        content = path.read_bytes()
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        self._send(content, headers)

    def _send_about(self, repository: Path, parts: list[str]) -> None:
        revision = unquote(parts[1]) if len(parts) > 1 else "main"
        if self._is_refused(repository, revision):
            return
        if parts[:1] == ["tree"]:
            folder = repository.joinpath(*parts[2:])
            if not folder.is_dir():
                self._send_error(404, "EntryNotFound")
                return
            answer: object = [_entry(path, repository) for path in sorted(folder.iterdir())]
        elif parts[:1] == ["paths-info"]:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            paths = [repository / path for path in json.loads(content)["paths"]]
            answer = [_entry(path, repository) for path in paths if path.exists()]
        else:
            name = "/".join(repository.parts[-2:])
            answer = {"id": name, "sha": COMMIT, "private": False, "siblings": [], "tags": []}
        self._send(json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _is_refused(self, repository: Path, revision: str) -> bool:
        if not repository.is_dir():
            self._send_error(404, "RepoNotFound")
        elif (repository / ".gated").exists():
            self._send_error(401, "GatedRepo")
        elif revision not in ("main", COMMIT):
            self._send_error(404, "RevisionNotFound")
        else:
            return False
        return True

    def _send_error(self, code: int, name: str) -> None:
        self.send_response(code)
        self.send_header("X-Error-Code", name)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def _entry(path: Path, repository: Path) -> dict[str, object]:
    name = path.relative_to(repository).as_posix()
    if path.is_dir():
        return {"type": "directory", "path": name, "oid": "1" * 40}
    return {"type": "file", "path": name, "oid": "0" * 40, "size": path.stat().st_size}


@contextmanager
def serving(root: Path, handler: type[Handler] = Handler) -> Iterator[str]:
    """Serve the data sets of a folder; yields the address."""
    handler.root = root
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
