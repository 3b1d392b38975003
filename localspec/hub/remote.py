"""The header of a GGUF that is still on the Hub, read by ranges of its first megabytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from localspec.errors import HubError
from localspec.gguf_header import GGUFHeader, parse_header
from localspec.gguf_names import Variant
from localspec.hub import client
from localspec.hub.files import RemoteFile, RemoteRepo

_FIRST, _MOST = 1 << 20, 8 << 20
"""Bytes asked for at first, and at most at once: each next request asks for twice as much."""


@dataclass(slots=True)
class _Segment:
    """Bytes of the file from ``start`` on that were fetched."""

    start: int
    content: bytearray

    @property
    def stop(self) -> int:
        return self.start + len(self.content)


@dataclass(slots=True)
class RangeFile:
    """A file of the Hub to seek and read in; what is read is fetched, each byte once."""

    file: RemoteFile
    fetched: int = 0
    _segments: list[_Segment] = field(default_factory=list)
    _position: int = 0
    _ahead: int = _FIRST

    def seek(self, offset: int, /) -> int:
        self._position = offset
        return offset

    def read(self, size: int, /) -> bytes:
        start = self._position
        stop = min(start + size, self.file.size)
        if start >= stop:
            return b""
        segment = next((s for s in self._segments if s.start <= start <= s.stop), None)
        if segment is None:
            segment = _Segment(start, bytearray())
            self._segments.append(segment)
        if segment.stop < stop:
            segment.content += self._fetch(segment.stop, stop)
        self._position = stop
        return bytes(segment.content[start - segment.start : stop - segment.start])

    def close(self) -> None:
        """Nothing: what was fetched stays for who opens the header's file again."""

    def _fetch(self, start: int, stop: int) -> bytes:
        last = min(max(stop, start + self._ahead), self.file.size) - 1
        self._ahead = min(2 * self._ahead, _MOST)

        def get() -> bytes:
            with client.get(self.file.url, first=start, last=last) as response:
                if response.status_code != 206 and (start > 0 or last + 1 < self.file.size):
                    raise HubError(
                        f"The server of {self.file.repo} sends whole files only, no ranges.",
                        "Check HF_ENDPOINT; such a mirror cannot be looked into.",
                    )
                return response.read()

        content = client.ask(get, f"{self.file.repo}/{self.file.path}")
        if len(content) != last + 1 - start:
            raise HubError(
                f"The Hub sent {len(content):,} bytes of {self.file.repo}/{self.file.path} where "
                f"{last + 1 - start:,} were asked for.",
                "Try again.",
            )
        self.fetched += len(content)
        return content


def read_remote(remote: RemoteRepo, variant: Variant) -> tuple[GGUFHeader, list[GGUFHeader]]:
    """The headers of a file, or of the first and of the further shards of a split model.

    Their ``path`` is ``owner/repo/file``; what ``pairing`` reads beyond the header (a vocabulary,
    a table) is fetched too. Raises ``HubError`` and its kinds, ``ModelFileError`` for what is no
    GGUF.
    """
    headers = [_read(file) for file in remote.files_of(variant)]
    return headers[0], headers[1:]


def _read(file: RemoteFile) -> GGUFHeader:
    stream = RangeFile(file)
    header = parse_header(stream, file.size, Path(file.repo) / file.path)

    def reopened() -> RangeFile:
        stream.seek(0)
        return stream

    return header.opened_by(reopened)
