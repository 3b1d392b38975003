"""Files of the Hub into the cache: in parallel, resumed, verified, handed over at once.

The bytes are written here and not by ``hf_hub_download``: since version 1.31 that writes to a
random name which it deletes when it fails, so that after 39 of 40 GB it starts again. Here they go
to ``blobs/<etag>.part``, which stays; the next pull, by whatever process, asks for the rest.

Xet, the chunked protocol that huggingface_hub prefers where ``hf_xet`` is installed, is not used: a
killed download of its begins at byte 0 (hf_xet 1.8.0: killed at 201 of 300 MB, the second process
transferred all 300 again, ``benchmarks/xet_resume.py``; its chunk cache is off by default), and
huggingface_hub deletes the file besides. Files stored in Xet are served over plain HTTP too, with
ranges, at the address used here.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx2
from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout
from huggingface_hub.errors import HfHubHTTPError

from localspec.errors import DownloadCancelled, DownloadFailed, HubError, LocalspecError
from localspec.hub import client, leftovers
from localspec.hub.files import (
    RemoteFile,
    arrived,
    checksum,
    hand_over,
    prepare,
    refer,
)
from localspec.paths import kind_here
from localspec.reference import hub_cache
from localspec.units import file_size

AT_ONCE = 3
"""Files at the same time: a CDN gives one connection less than a fast line can take."""
LONGEST_ANSWER = 16 << 30
"""Bytes asked for at once: CDNs do not send more than about 50 GB in one answer."""
_REPORT_S = 0.1
_SPEED_OVER_S = 8.0

State = Literal["waiting", "downloading", "verifying", "done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class FileProgress:
    """``done`` of ``size`` bytes are here, ``checked`` of them verified; ``speed`` in bytes/s.

    ``note`` says what it waits for; ``kept`` bytes of it were here before this download.
    """

    path: str
    size: int
    done: int = 0
    checked: int = 0
    state: State = "waiting"
    speed: float | None = None
    note: str = ""
    kept: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    files: tuple[FileProgress, ...]
    speed: float | None = None
    """Bytes/s that arrived over the last seconds, all files together."""

    @property
    def size(self) -> int:
        return sum(f.size for f in self.files)

    @property
    def done(self) -> int:
        return sum(f.done for f in self.files)

    @property
    def eta(self) -> float | None:
        """Seconds until everything is here."""
        return (self.size - self.done) / self.speed if self.speed else None


Report = Callable[[Progress], None]


def download(
    files: Sequence[RemoteFile],
    report: Report = lambda _: None,
    cancel: threading.Event | None = None,
    *,
    backoff: client.Backoff | None = None,
) -> list[Path]:
    """Bring ``files`` into the cache and return where they are.

    ``report`` is called from this thread about ten times a second and once at the end. A set
    ``cancel``, or a KeyboardInterrupt here, ends it; what arrived stays and is not asked for again.
    A file that fails does not stop the others; then the first error is raised: ``HubError``,
    ``DownloadFailed`` (no room, not writable, wrong content), ``DownloadCancelled``.
    """
    cancel = cancel or threading.Event()
    files = list({f.local: f for f in files}.values())
    with _storing(hub_cache()):
        check_room(files)
        prepare(f for f in files if not f.is_here)
    transfers = [_Transfer(file, cancel, backoff or client.BACKOFF) for file in files]
    queue = deque(transfers)

    def work() -> None:
        while not cancel.is_set():
            try:
                transfer = queue.popleft()
            except IndexError:
                return
            transfer.run()

    # Daemons: one that waits for a silent connection must not keep the process after Ctrl-C.
    threads = [threading.Thread(target=work, daemon=True) for _ in transfers[:AT_ONCE]]
    meter = _Meter()
    try:
        for thread in threads:
            thread.start()
        while any(t.is_alive() for t in threads):
            report(meter.read(transfers))
            _join(threads, _REPORT_S)
            if cancel.is_set():
                _join(threads, 1.0)
                break
    except BaseException:
        cancel.set()
        _join(threads, 1.0)
        raise
    finally:
        for transfer in transfers:
            transfer.end()
        report(meter.read(transfers))
    for transfer in transfers:
        if transfer.error is not None:
            raise transfer.error
    if any(t.state == "cancelled" for t in transfers):
        raise DownloadCancelled("The download was cancelled.", "What arrived is kept.")
    return [file.local for file in files]


def check_room(files: Sequence[RemoteFile]) -> None:
    """Raises ``DownloadFailed`` when what is missing does not fit on the cache's disk."""
    needed = sum({f.blob: f.missing for f in files}.values())
    folder = hub_cache()
    while not kind_here(folder):
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DownloadFailed(
            f"{file_size(needed)} are to be downloaded, but the disk of {hub_cache()} has only "
            f"{file_size(free)} free.",
            "Make room (`localspec models rm` removes a model), choose a smaller quantisation, or "
            "set HF_HUB_CACHE to a folder on another disk.",
        )


def _join(threads: Sequence[threading.Thread], seconds: float) -> None:
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


class _Cancelled(Exception):
    """Leaves the worker of a file; never leaves this module."""


@contextmanager
def _storing(where: Path) -> Iterator[None]:
    """Turns what the file system refuses into a sentence."""
    try:
        yield
    except HfHubHTTPError:  # is an OSError, but not of this disk
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DownloadFailed(
                f"The disk is full: {where} cannot grow.",
                "What arrived is kept. Make room, then pull again: it goes on where it stopped.",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise DownloadFailed(
                f"The cache cannot be written: {error.strerror}: {error.filename or where}.",
                "Get the right to write there, or set HF_HUB_CACHE to a folder of your own.",
            ) from error
        raise DownloadFailed(
            f"{error.filename or where} cannot be stored: {error.strerror or error}.",
            "Check that disk, or set HF_HUB_CACHE to a folder on another one.",
        ) from error


class _Meter:
    """Speeds over the last seconds, of each file and of all."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, list[int]]] = deque()

    def read(self, transfers: Sequence[_Transfer]) -> Progress:
        now, received = time.monotonic(), [t.received for t in transfers]
        self._samples.append((now, received))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _SPEED_OVER_S:
            self._samples.popleft()
        then, before = self._samples[0]
        speeds: list[float | None] = [None] * len(transfers)
        total = None
        if now - then >= 0.5:
            speeds = [(n - b) / (now - then) for n, b in zip(received, before, strict=True)]
            total = (sum(received) - sum(before)) / (now - then)
        return Progress(
            tuple(
                FileProgress(
                    path=t.file.path,
                    size=t.file.size,
                    done=t.done,
                    checked=t.checked,
                    state=t.state,
                    speed=speed if t.state == "downloading" else None,
                    note=t.note,
                    kept=t.kept,
                )
                for t, speed in zip(transfers, speeds, strict=True)
            ),
            total,
        )


class _Transfer:
    """One file on its way. Its own thread changes it, the thread of ``download`` reads it."""

    def __init__(self, file: RemoteFile, cancel: threading.Event, backoff: client.Backoff) -> None:
        self.file = file
        self.state: State = "waiting"
        self.done = self.kept = file.size - file.missing
        self.checked = 0
        self.received = 0
        """Bytes that came over the line, those thrown away included."""
        self.note = ""
        self.error: Exception | None = None
        self._cancel = cancel
        self._backoff = backoff

    def run(self) -> None:
        try:
            if self.file.is_here:
                with suppress(OSError):  # a cache that cannot be written can still be read
                    refer(self.file)
            else:
                self._bring()
            self.done, self.state, self.note = self.file.size, "done", ""
        except _Cancelled:
            self.state = "cancelled"
        except Exception as error:  # noqa: BLE001  raised again in the thread of download()
            self.error, self.state = error, "failed"
            self.note = error.message if isinstance(error, LocalspecError) else str(error)

    def end(self) -> None:
        """No thread works on it any more, or none that is waited for."""
        if self.state in ("waiting", "downloading", "verifying"):
            self.state = "cancelled"

    def _bring(self) -> None:
        file = self.file
        with _storing(file.part), self._locked():
            if file.is_here:  # another process brought it
                return
            if file.blob_is_here:
                hand_over(file, file.blob)
                return
            for last in (False, True):
                with client.hub_errors(f"{file.repo}/{file.path}"):
                    self._receive()
                if self._is_right():
                    break
                file.part.unlink()
                leftovers.forget(file.part)
                self.done = 0
                if last:
                    raise DownloadFailed(
                        f"{file.path} of {file.repo} arrived twice with other content than the Hub "
                        "promises (SHA-256), and was thrown away.",
                        "Try again later or from another network; something on the way, or the "
                        "Hub's copy, is damaged.",
                    )
                self.note = "wrong content; once more"
            with file.part.open("rb+") as whole:
                os.fsync(whole.fileno())  # no power cut turns a verified file into zeros
            hand_over(file, file.part)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The file's lock, shared with huggingface_hub: one process at a time fetches it."""
        lock: BaseFileLock = FileLock(self.file.lock, mode=0o664)
        while True:
            self._go_on()
            try:
                lock.acquire(timeout=0.2)
                break
            except Timeout:
                self.note = "another process is downloading it"
                self.done = self.file.size - self.file.missing
            except NotImplementedError:  # this file system has no locks
                lock = SoftFileLock(self.file.lock)
        self.note = ""
        try:
            yield
        finally:
            lock.release()

    def _receive(self) -> None:
        """Bytes into the part until it is whole."""
        self.state, failed, whole = "downloading", 0, False
        if arrived(self.file.part) > self.file.size:
            self.file.part.unlink()
        self.file.part.touch()
        leftovers.note(self.file)
        while (have := arrived(self.file.part)) < self.file.size:
            self._go_on()
            self.done = have
            try:
                whole |= not self._answer(have, whole=whole)
            except (HfHubHTTPError, httpx2.TransportError) as error:
                failed = 1 if arrived(self.file.part) > have else failed + 1
                seconds = self._backoff.wait(error, failed)
                if seconds is None:
                    raise
                self._pause(seconds, error)

    def _answer(self, have: int, *, whole: bool) -> bool:
        """Append one answer of the Hub, which is asked for what is missing, or for the ``whole``
        file. False: it sent another range, of which nothing was stored."""
        file = self.file
        last = None if whole or file.size - have <= LONGEST_ANSWER else have + LONGEST_ANSWER - 1
        with client.get(file.url, first=0 if whole else have, last=last) as got:
            if got.status_code == 206:
                if _content_range(got) != (have, file.size):
                    return False
            else:
                # Everything, although a part was asked for. A page that some proxy puts in the
                # file's place must not cost what has arrived.
                length = got.headers.get("Content-Length", str(file.size))
                if length != str(file.size):
                    raise self._not_the_file(length)
                have = 0
                os.truncate(file.part, 0)
            self.note, self.done = "", have
            with file.part.open("ab", buffering=0) as part:
                for piece in got.iter_raw():
                    self.received += len(piece)
                    part.write(piece[: file.size - self.done])
                    self.done = min(file.size, self.done + len(piece))
                    self._go_on()
        return True

    def _not_the_file(self, length: str) -> HubError:
        return HubError(
            f"The Hub sent {length} bytes instead of the {self.file.size} of {self.file.path}.",
            "Check HF_ENDPOINT; a proxy or a login page of the network can stand in between.",
        )

    def _is_right(self) -> bool:
        self.state = "verifying"

        def note(done: int) -> None:
            self.checked = done
            self._go_on()

        return checksum(self.file.part, self.file.etag, note) == self.file.etag

    def _pause(self, seconds: float, error: Exception) -> None:
        status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
        what = f"the Hub answered {status}" if status else "the connection broke"
        self.note = f"{what}; again in {seconds:.0f} s"
        self._cancel.wait(seconds)
        self._go_on()

    def _go_on(self) -> None:
        if self._cancel.is_set():
            raise _Cancelled


_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


def _content_range(response: httpx2.Response) -> tuple[int, int] | None:
    """The first byte of an answer and the length of the whole file, as it states them."""
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    return (int(match[1]), int(match[2])) if match else None
