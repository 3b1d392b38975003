"""A Hub on the loopback: what huggingface.co answers to its own client, and its possible faults.

It knows repos with files, gating, privacy, tokens and revisions, and serves metadata
(``model_info``, ``list_repo_tree``, ``paths-info``, search) and files as the Hub does: small text
files from ``/resolve/`` itself, the others by a redirect to a CDN on another origin (``localhost``
instead of ``127.0.0.1``), with ranges. It notes every request and how many bytes of bodies it sent.
A ``Fault`` changes what is answered. The shapes of headers, bodies and errors are those that
huggingface_hub 2.4 reads (``hf_raise_for_status``, ``get_hf_file_metadata``, ``ModelInfo``,
``RepoFile``). The fixture ``hub`` (conftest.py) points everything at one.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest
from patience import FOREVER

TOKEN = "hf_loopback_good"
"""The one token that this Hub knows."""

_CHUNK = 16 * 1024


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_sha1(content: bytes) -> str:
    """The id of a file that is stored in git itself: its ETag on the Hub."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repo:
    """``gated``: its files need ``granted``; ``private``: it is only there for the token.

    ``info`` are further keys of the answer of the API: downloads, likes, tags, cardData, gguf, ...
    """

    id: str
    files: dict[str, bytes]
    gated: bool | str = False
    granted: bool = False
    private: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    branches: tuple[str, ...] = ("main",)

    @property
    def commit(self) -> str:
        """Changes with the content, as a commit does."""
        state = json.dumps([[path, sha256(content)] for path, content in self.files.items()])
        return hashlib.sha1(f"{self.id} {state}".encode()).hexdigest()

    def is_lfs(self, path: str) -> bool:
        """Large files and every GGUF are, by the .gitattributes that the Hub makes."""
        return path.endswith((".gguf", ".safetensors", ".bin")) or len(self.files[path]) > 10**7

    def etag(self, path: str) -> str:
        content = self.files[path]
        return sha256(content) if self.is_lfs(path) else git_sha1(content)

    def entry(self, path: str) -> dict[str, Any]:
        """A file as the tree lists it."""
        content = self.files[path]
        entry: dict[str, Any] = {
            "type": "file",
            "oid": git_sha1(content),
            "size": len(content),
            "path": path,
        }
        if self.is_lfs(path):
            entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
        return entry

    def sibling(self, path: str, *, blobs: bool) -> dict[str, Any]:
        """A file as ``model_info`` lists it."""
        entry = self.entry(path)
        sibling: dict[str, Any] = {"rfilename": path}
        if blobs:
            sibling |= {"size": entry["size"], "blobId": entry["oid"]}
            if lfs := entry.get("lfs"):
                sibling["lfs"] = {"sha256": lfs["oid"], **lfs}
        return sibling

    def answer(self, *, siblings: bool = True, blobs: bool = False) -> dict[str, Any]:
        card: dict[str, Any] = {
            "_id": self.commit[:24],
            "id": self.id,
            "modelId": self.id,
            "author": self.id.split("/")[0],
            "sha": self.commit,
            "private": self.private,
            "gated": self.gated,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "createdAt": "2026-01-01T00:00:00.000Z",
            "lastModified": "2026-01-02T00:00:00.000Z",
            **self.info,
        }
        if siblings:
            card["siblings"] = [self.sibling(path, blobs=blobs) for path in self.files]
        return card


@dataclass
class Fault:
    """What goes wrong with requests whose path matches ``path``, the next ``times`` times.

    ``status`` answers with that error. ``cut_at`` closes the connection after that many bytes of a
    body, ``hold_at`` waits there for ``HubServer.release``. ``content`` is served in place of the
    right bytes, ``ignore_range`` answers 200 with everything, ``wrong_range`` answers a 206 that
    starts at 0 whatever was asked for.
    """

    path: str = ""
    times: int = 1
    method: str = "GET"
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut_at: int | None = None
    hold_at: int | None = None
    content: bytes | None = None
    ignore_range: bool = False
    wrong_range: bool = False


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Message
    """Names in any case."""

    @property
    def range(self) -> str | None:
        return self.headers.get("Range")


class HubServer:
    """Use as a context manager; ``url`` is what HF_ENDPOINT should be."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.datasets: dict[str, list[dict[str, Any]]] = {}
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.sent: dict[str, int] = {}
        """Bytes of bodies sent from the CDN and from ``/resolve/``, by path of the file."""
        self.release = threading.Event()
        self.held = threading.Event()
        """Set once a request waits at ``hold_at``."""
        self.lock = threading.Lock()
        self.forgotten = 0
        """How often: a request from before adds nothing to the counts since."""
        hub = self

        class Handler(_Handler):
            server_hub = hub

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that was killed is no error here."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.cdn = f"http://localhost:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> HubServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()

    def add(self, repo: str, files: Mapping[str, bytes | Path], **more: Any) -> Repo:
        """A repo with these files; ``more`` are fields of ``Repo``, the rest keys of ``info``."""
        contents = {p: c if isinstance(c, bytes) else c.read_bytes() for p, c in files.items()}
        own = {k: v for k, v in more.items() if k in Repo.__dataclass_fields__}
        info = {k: v for k, v in more.items() if k not in own}
        self.repos[repo] = Repo(repo, contents, **{"info": info, **own})
        return self.repos[repo]

    def fail(self, path: str = "", **what: Any) -> Fault:
        fault = Fault(path, **what)
        self.faults.append(fault)
        return fault

    def asked(self, part: str, method: str = "GET") -> list[Request]:
        """The requests whose path has ``part`` in it, in order."""
        with self.lock:
            return [r for r in self.requests if part in r.path and r.method == method]

    def bytes_sent(self, name: str = "") -> int:
        """Bytes of the content of files whose path ends in ``name``."""
        with self.lock:
            return sum(n for path, n in self.sent.items() if path.endswith(name))

    def forget(self) -> None:
        """Counts and notes start anew; repos stay."""
        with self.lock:
            self.forgotten += 1
            self.requests.clear()
            self.sent.clear()
            self.faults.clear()

    def take_fault(self, method: str, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times > 0 and fault.method == method and fault.path in path:
                    fault.times -= 1
                    return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    server_hub: HubServer
    protocol_version = "HTTP/1.1"
    wbufsize = 0

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the parent's name
        pass

    def do_HEAD(self) -> None:
        self._route("HEAD")

    def do_GET(self) -> None:
        self._route("GET")

    def do_POST(self) -> None:
        self._route("POST")

    def _route(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        hub, split = self.server_hub, urlsplit(self.path)
        path = unquote(split.path)
        with hub.lock:
            hub.requests.append(Request(method, path, self.headers))
        self.method, self.query = method, parse_qs(split.query)
        self.fault = hub.take_fault(method, path) or Fault()
        if self.fault.status is not None:
            self._refuse(self.fault.status, "", "Something is wrong here.", self.fault.headers)
            return
        bearer = self.headers.get("Authorization", "")
        if bearer and path.startswith("/cdn/"):
            self._refuse(400, "", "A token has no business at the CDN.")
            return
        if bearer and bearer != f"Bearer {TOKEN}":
            self._refuse(401, "", "Invalid credentials in Authorization header")
            return
        self.known = bool(bearer)
        if path == "/api/models":
            self._json([r.answer(siblings="full" in self.query) for r in self._found()])
        elif match := re.fullmatch(
            r"/api/models/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/(.+))?", path
        ):
            self._metadata(match[1], match[2], match[3], body)
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(match[1], match[2], match[3])
        elif match := re.fullmatch(r"/cdn/([^/]+/[^/]+)/(.+)", path):
            self._content(match[1], match[2])
        elif path == "/rows":
            self._rows()
        elif path == "/api/whoami-v2" and self.known:
            self._json(
                {"name": "tester", "type": "user", "auth": {"accessToken": {"role": "read"}}}
            )
        else:
            self._refuse(404, "", "Sorry, we can't find the page you are looking for.")

    # ---- the dataset viewer ----

    def _rows(self) -> None:
        """As datasets-server.huggingface.co: at most 100 rows an answer."""
        first, length = (int(self.query[word][0]) for word in ("offset", "length"))
        rows = self.server_hub.datasets[self.query["dataset"][0]]
        shown = rows[first : first + min(length, 100)]
        entries = [
            {"row_idx": first + i, "row": row, "truncated_cells": []} for i, row in enumerate(shown)
        ]
        self._json({"features": [], "rows": entries, "num_rows_total": len(rows)})

    # ---- metadata ----

    def _found(self) -> list[Repo]:
        """Search: all words in the id, ``author``, ``filter`` among the tags; by downloads."""
        words = " ".join(self.query.get("search", [])).lower().split()
        authors = self.query.get("author", [])
        tags = [t for value in self.query.get("filter", []) for t in value.split(",")]
        found = [
            repo
            for repo in self.server_hub.repos.values()
            if (not repo.private or self.known)
            and all(word in repo.id.lower() for word in words)
            and all(repo.id.split("/")[0] == author for author in authors)
            and all(tag in repo.answer()["tags"] for tag in tags)
        ]
        found.sort(key=lambda r: -r.answer()["downloads"])
        return found[: int(self.query.get("limit", ["1000"])[0])]

    def _repo(self, name: str, revision: str | None = None) -> Repo | None:
        """The repo, or None after a refusal."""
        repo = self.server_hub.repos.get(name)
        if repo is None or (repo.private and not self.known):
            if self.known:
                self._refuse(404, "RepoNotFound", "Repository not found")
            else:
                self._refuse(401, "", "Invalid username or password.")
            return None
        if revision is not None and revision not in (*repo.branches, repo.commit):
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None
        return repo

    def _metadata(self, name: str, what: str | None, rest: str | None, body: bytes) -> None:
        revision, _, folder = (rest or "main").partition("/")
        repo = self._repo(name, revision)
        if repo is None:
            return
        if what == "tree":
            inside = [p for p in repo.files if not folder or p.startswith(f"{folder}/")]
            self._json([repo.entry(path) for path in inside])
        elif what == "paths-info":
            asked = parse_qs(body.decode()).get("paths", [])
            self._json([repo.entry(path) for path in asked if path in repo.files])
        else:
            self._json(repo.answer(blobs="blobs" in self.query))

    # ---- files ----

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repo = self._repo(name, revision)
        if repo is None:
            return
        if repo.gated and not (self.known and repo.granted):
            self._refuse(
                403 if self.known else 401,
                "GatedRepo",
                f"Access to model {name} is restricted and you are not in the authorized list."
                if self.known
                else f"Access to model {name} is restricted. Please log in.",
            )
            return
        if path not in repo.files:
            self._refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": repo.commit})
            return
        content, etag = repo.files[path], repo.etag(path)
        headers = {"X-Repo-Commit": repo.commit, "Accept-Ranges": "bytes"}
        if repo.is_lfs(path):
            headers |= {
                "X-Linked-Size": str(len(content)),
                "X-Linked-Etag": f'"{etag}"',
                "ETag": f'"{git_sha1(content)}"',
                "Location": f"{self.server_hub.cdn}/cdn/{quote(name)}/{quote(path)}?Signature=x",
            }
            self._begin(302, headers, 0)
        else:
            self._body(content, headers | {"ETag": f'"{etag}"'}, path)

    def _content(self, name: str, path: str) -> None:
        content = self.server_hub.repos[name].files[path]
        # A CDN has ETags of its own, made of the parts of an upload.
        headers = {"ETag": f'"{hashlib.md5(content).hexdigest()}-1"', "Accept-Ranges": "bytes"}
        self._body(content, headers, path)

    def _body(self, content: bytes, headers: Mapping[str, str], path: str) -> None:
        """The content or the range of it that was asked for, with the faults of this request."""
        fault = self.fault
        if fault.content is not None:
            content = fault.content
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first, last, status = 0, len(content) - 1, 200
        if asked and not fault.ignore_range:
            status = 206
            first = 0 if fault.wrong_range else int(asked[1])
            last = min(last, int(asked[2])) if asked[2] else last
            if first > last:
                self._begin(416, {"Content-Range": f"bytes */{len(content)}"}, 0)
                return
            headers = {**headers, "Content-Range": f"bytes {first}-{last}/{len(content)}"}
        self._begin(status, headers, last + 1 - first)
        if self.method == "HEAD":
            return
        stops = [s for s in (fault.cut_at, fault.hold_at) if s is not None]
        sent, began = 0, self.server_hub.forgotten

        def count(size: int) -> None:
            with self.server_hub.lock:
                if self.server_hub.forgotten == began:
                    counts = self.server_hub.sent
                    counts[path] = counts.get(path, 0) + size

        for part in _parts(content[first : last + 1], stops):
            if fault.cut_at == sent:
                break
            if fault.hold_at == sent:
                self.server_hub.held.set()
                self.server_hub.release.wait()
            count(len(part))  # before: who has it may look at once
            try:
                self.wfile.write(part)
            except OSError:
                count(-len(part))
                break
            sent += len(part)
        if sent < last + 1 - first:
            self.close_connection = True

    # ---- answers ----

    def _begin(self, status: int, headers: Mapping[str, str], length: int) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def _json(self, answer: object) -> None:
        body = json.dumps(answer).encode()
        self._begin(200, {"Content-Type": "application/json"}, len(body))
        if self.method != "HEAD":
            self.wfile.write(body)

    def _refuse(
        self, status: int, code: str, message: str, more: Mapping[str, str] | None = None
    ) -> None:
        headers = {"Content-Type": "application/json", "X-Error-Message": message, **(more or {})}
        if code:
            headers["X-Error-Code"] = code
        body = json.dumps({"error": message}).encode()
        self._begin(status, headers, len(body))
        if self.method != "HEAD":
            self.wfile.write(body)


def _parts(content: bytes, stops: list[int]) -> Iterator[bytes]:
    """Pieces of at most ``_CHUNK`` bytes, none of them across a stop; an empty one behind the end,
    where a fault at the very end takes hold."""
    at = 0
    while at < len(content):
        until = min([at + _CHUNK, len(content), *(s for s in stops if s > at)])
        yield content[at:until]
        at = until
    yield b""


@contextmanager
def hub_on(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[HubServer]:
    """A loopback Hub that huggingface_hub uses, in this process and in those it starts.

    ``home`` becomes HF_HOME, so the cache is ``home / "hub"``.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session

    with HubServer() as server:
        environment = {"HF_ENDPOINT": server.url, "HF_HOME": str(home)}
        environment["HF_HUB_DOWNLOAD_TIMEOUT"] = str(int(FOREVER))  # a busy machine's silence
        for name in (
            "HF_TOKEN",
            "HUGGING_FACE_HUB_TOKEN",
            "HF_HUB_CACHE",
            "HUGGINGFACE_HUB_CACHE",
            "HF_HUB_OFFLINE",
            "TRANSFORMERS_OFFLINE",
            "HF_TOKEN_PATH",
            "HTTP_PROXY",
            "http_proxy",
            "HTTPS_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "all_proxy",
        ):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        # The library reads the environment once, when it is imported.
        for name, read in {
            "ENDPOINT": server.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": server.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_URL_HOSTS": frozenset({"127.0.0.1", "huggingface.co", "hf.co"}),
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_TOKEN_PATH": str(home / "token"),
            "HF_STORED_TOKENS_PATH": str(home / "stored_tokens"),
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DOWNLOAD_TIMEOUT": int(FOREVER),
        }.items():
            monkeypatch.setattr(constants, name, read)
        close_session()
        yield server
        close_session()
