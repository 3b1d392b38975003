"""Files into the cache: resumed at any byte, verified, handed over at once, never twice."""

from __future__ import annotations

import errno
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hub_server import TOKEN, HubServer
from huggingface_hub import constants, scan_cache_dir, snapshot_download, try_to_load_from_cache
from patience import FOREVER

from localspec.errors import DownloadCancelled, DownloadFailed, HubError, HubUnreachable
from localspec.hub import client, download, files
from localspec.hub.download import Progress
from localspec.hub.files import RemoteFile
from localspec.reference import hub_cache

QUICK = client.Backoff(first_s=0.001)
REPO, NAME = "me/m-GGUF", "m-Q4_K_M.gguf"
CONTENT = random.Random(1).randbytes(300_000)


@pytest.fixture
def file(hub: HubServer) -> RemoteFile:
    hub.add(REPO, {NAME: CONTENT, "README.md": b"# m"})
    return remote(NAME)


def remote(name: str, repo: str = REPO) -> RemoteFile:
    return next(f for f in files.resolve(repo).files if f.path == name)


def fetch(*wanted: RemoteFile, **more: object) -> list[Path]:
    return download.download(wanted, backoff=QUICK, **more)  # type: ignore[arg-type]


def failure(*wanted: RemoteFile) -> Exception:
    with pytest.raises((DownloadFailed, HubError)) as told:
        fetch(*wanted)
    return told.value


# ---- the cache is that of all other tools ------------------------------------------------------


def test_a_file_lies_where_the_hubs_own_library_looks(hub: HubServer, file: RemoteFile) -> None:
    (path,) = fetch(file)
    assert path.read_bytes() == CONTENT
    assert path == Path(try_to_load_from_cache(REPO, NAME))
    assert path.is_symlink() and path.resolve().name == file.sha256
    assert not list(path.resolve().parent.glob("*.part"))
    (repo,) = scan_cache_dir(hub_cache()).repos
    assert (repo.repo_id, repo.size_on_disk) == (REPO, len(CONTENT))
    assert [set(r.refs) for r in repo.revisions] == [{"main"}]
    hub.forget()
    assert Path(snapshot_download(REPO, allow_patterns="*.gguf")) == path.parent
    assert hub.bytes_sent() == 0, "nothing is fetched a second time"


def test_what_another_tool_fetched_is_not_fetched_again(hub: HubServer, file: RemoteFile) -> None:
    snapshot_download(REPO)
    hub.forget()
    assert fetch(file)[0].read_bytes() == CONTENT
    assert not hub.requests


def test_a_new_commit_with_the_same_file_fetches_nothing(hub: HubServer, file: RemoteFile) -> None:
    fetch(file)
    hub.repos[REPO].files["README.md"] = b"# another"
    newer = remote(NAME)
    assert newer.commit != file.commit
    hub.forget()
    assert fetch(newer)[0].read_bytes() == CONTENT
    assert hub.bytes_sent() == 0
    assert try_to_load_from_cache(REPO, NAME) == str(newer.local)


def test_a_branch_means_a_new_commit_once_a_file_of_it_is_here(
    hub: HubServer, file: RemoteFile
) -> None:
    fetch(file)
    hub.repos[REPO].files[NAME] = CONTENT[::-1]
    newer = remote(NAME)
    hub.fail("/resolve/", status=403)
    failure(newer)
    assert try_to_load_from_cache(REPO, NAME) == str(file.local), "the old one is still to be found"
    fetch(newer)
    assert try_to_load_from_cache(REPO, NAME) == str(newer.local)


def test_two_names_of_one_content_are_fetched_once(hub: HubServer) -> None:
    hub.add(REPO, {"a.gguf": CONTENT, "b.gguf": CONTENT})
    a, b = fetch(remote("a.gguf"), remote("b.gguf"))
    assert a.resolve() == b.resolve()
    assert hub.bytes_sent() == len(CONTENT)


def test_small_files_that_git_keeps_are_verified_by_their_git_id(hub: HubServer) -> None:
    hub.add(REPO, {"README.md": b"# m"})
    readme = remote("README.md")
    assert readme.sha256 is None
    assert fetch(readme)[0].read_bytes() == b"# m"


def test_where_links_are_not_possible_the_file_itself_is_handed_over(
    file: RemoteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", True)
    (path,) = fetch(file)
    assert not path.is_symlink() and path.read_bytes() == CONTENT
    assert not file.blob.exists()
    assert fetch(file) == [path]


def test_unicode_and_spaces_in_names_and_folders(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "mein Ordner é"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "mein Ordner é"))
    name = "Q4 K/mödel #1 100%?.gguf"
    hub.add(REPO, {name: CONTENT})
    (path,) = fetch(remote(name))
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(tmp_path / "mein Ordner é") and str(path).endswith(name)


@pytest.mark.parametrize("name", ["../../evil.gguf", "/evil.gguf", "a\\..\\evil.gguf"])
def test_a_name_that_leads_out_of_the_cache_is_refused(hub: HubServer, name: str) -> None:
    hub.add(REPO, {name: b"G"})
    with pytest.raises(HubError, match="not safe to store"):
        files.resolve(REPO)


def test_a_dead_link_is_replaced(file: RemoteFile) -> None:
    (path,) = fetch(file)
    file.blob.unlink()
    assert path.is_symlink() and not path.exists()
    assert fetch(file)[0].read_bytes() == CONTENT
    path.unlink()
    path.symlink_to("nowhere")
    assert fetch(file)[0].read_bytes() == CONTENT


def test_a_blob_of_another_size_is_damaged_and_replaced(file: RemoteFile) -> None:
    fetch(file)
    file.blob.write_bytes(CONTENT[:1000])
    assert fetch(file)[0].read_bytes() == CONTENT


# ---- interruptions -----------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 1, 4096, 150_001, len(CONTENT) - 1])
def test_a_cut_connection_goes_on_at_that_byte(hub: HubServer, file: RemoteFile, cut: int) -> None:
    hub.fail("/cdn/", cut_at=cut)
    assert fetch(file)[0].read_bytes() == CONTENT
    assert hub.bytes_sent(NAME) == len(CONTENT), "no byte was sent twice"
    assert [r.range for r in hub.asked("/cdn/")] == [None, f"bytes={cut}-" if cut else None]


def test_cuts_again_and_again_with_progress_in_between(hub: HubServer, file: RemoteFile) -> None:
    hub.fail("/cdn/", cut_at=20_000, times=14)
    assert fetch(file)[0].read_bytes() == CONTENT
    assert hub.bytes_sent(NAME) == len(CONTENT)


def test_a_connection_that_only_breaks_is_given_up_and_kept(
    hub: HubServer, file: RemoteFile
) -> None:
    hub.fail("/cdn/", cut_at=100_000)
    hub.fail("/cdn/", cut_at=0, times=99)
    error = failure(file)
    assert isinstance(error, HubUnreachable) and NAME in str(error)
    assert file.part.read_bytes() == CONTENT[:100_000]
    assert not file.local.exists() and not file.blob.exists()
    hub.forget()
    fetch(file)
    assert hub.bytes_sent(NAME) == len(CONTENT) - 100_000


def test_a_200_where_a_part_was_asked_for_starts_anew(hub: HubServer, file: RemoteFile) -> None:
    hub.fail("/cdn/", cut_at=100_000)
    hub.fail("/cdn/", ignore_range=True)
    assert fetch(file)[0].read_bytes() == CONTENT
    assert hub.bytes_sent(NAME) == 100_000 + len(CONTENT)


def test_a_206_of_other_bytes_is_not_appended(
    hub: HubServer, file: RemoteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def checksum(path: Path, *more: Any) -> str:
        sizes.append(path.stat().st_size)
        return files.checksum(path, *more)

    monkeypatch.setattr(download, "checksum", checksum)
    hub.fail("/cdn/", cut_at=100_000)
    hub.fail("/cdn/", wrong_range=True)
    assert fetch(file)[0].read_bytes() == CONTENT
    assert sizes == [len(CONTENT)], "it never came to a wrong file that the checksum had to find"
    assert [r.range for r in hub.asked("/cdn/")] == [None, "bytes=100000-", None]


def test_a_login_page_in_the_files_place_costs_nothing(hub: HubServer, file: RemoteFile) -> None:
    file.part.parent.mkdir(parents=True)
    file.part.write_bytes(CONTENT[:200_000])
    hub.fail("/cdn/", content=b"<html>Welcome to the hotel</html>", ignore_range=True, times=99)
    assert "sent 33 bytes instead of the 300000" in str(failure(file))
    assert file.part.read_bytes() == CONTENT[:200_000]


def test_large_files_are_asked_for_in_pieces(
    hub: HubServer, file: RemoteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "LONGEST_ANSWER", 128_000)
    assert fetch(file)[0].read_bytes() == CONTENT
    ranges = [r.range for r in hub.asked("/cdn/")]
    assert ranges == ["bytes=0-127999", "bytes=128000-255999", "bytes=256000-"]


def test_cancel_keeps_what_arrived(hub: HubServer, file: RemoteFile) -> None:
    hub.fail("/cdn/", hold_at=100_000)
    cancel, reports = threading.Event(), []

    def report(progress: Progress) -> None:
        reports.append(progress)
        if progress.done == 100_000:
            cancel.set()
            hub.release.set()

    with pytest.raises(DownloadCancelled):
        fetch(file, report=report, cancel=cancel)
    assert reports[-1].files[0].state == "cancelled"
    assert not file.local.exists()
    kept = file.part.stat().st_size
    assert 100_000 <= kept < len(CONTENT)
    hub.forget()
    fetch(file)
    assert hub.bytes_sent(NAME) == len(CONTENT) - kept


# ---- faults ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_fault_of_the_hub_is_waited_for(hub: HubServer, file: RemoteFile, status: int) -> None:
    hub.fail("/resolve/", status=status, times=2)
    hub.fail("/cdn/", status=status, times=2)
    assert fetch(file)[0].read_bytes() == CONTENT


def test_a_fault_that_stays_is_said(hub: HubServer, file: RemoteFile) -> None:
    hub.fail("/cdn/", status=503, times=99)
    error = failure(file)
    assert "status 503" in str(error) and NAME in str(error)
    assert len(hub.asked("/cdn/")) == QUICK.attempts


def test_wrong_content_is_fetched_once_more(hub: HubServer, file: RemoteFile) -> None:
    hub.fail("/cdn/", content=b"x" * len(CONTENT))
    assert fetch(file)[0].read_bytes() == CONTENT
    assert hub.bytes_sent(NAME) == 2 * len(CONTENT)


def test_wrong_content_twice_is_refused(hub: HubServer, file: RemoteFile) -> None:
    hub.fail("/cdn/", content=b"x" * len(CONTENT), times=2)
    assert "arrived twice with other content" in str(failure(file))
    assert not (file.local.exists() or file.blob.exists() or file.part.exists())


def test_a_part_with_a_wrong_byte_is_found_out(hub: HubServer, file: RemoteFile) -> None:
    file.part.parent.mkdir(parents=True)
    file.part.write_bytes(b"x" + CONTENT[1:250_000])
    assert fetch(file)[0].read_bytes() == CONTENT
    assert hub.bytes_sent(NAME) == 50_000 + len(CONTENT)


def test_no_room_is_said_before_the_first_byte(
    hub: HubServer, file: RemoteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=len(CONTENT) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    hub.forget()
    error = failure(file)
    assert "300.0 kB are to be downloaded" in str(error) and "HF_HUB_CACHE" in str(error)
    assert not hub.requests
    file.part.parent.mkdir(parents=True)
    file.part.write_bytes(CONTENT[:1000])
    assert fetch(file)[0].read_bytes() == CONTENT, "only what is missing needs room"


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """A file system on which no file grows beyond a size: writes there end with ENOSPC."""
    room = [1 << 40]
    plain = Path.open

    class Full:
        def __init__(self, stream: object) -> None:
            self.stream = stream

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.stream.close()  # type: ignore[attr-defined]

        def write(self, piece: bytes) -> int:
            if self.stream.tell() + len(piece) > room[0]:  # type: ignore[attr-defined]
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self.stream.write(piece)  # type: ignore[attr-defined, no-any-return]

    def opened(path: Path, mode: str = "r", *args: object, **more: object) -> object:
        stream = plain(path, mode, *args, **more)  # type: ignore[call-overload]
        return Full(stream) if mode == "ab" else stream

    monkeypatch.setattr(Path, "open", opened)
    yield lambda size: room.__setitem__(0, size)


def test_a_disk_that_fills_up_keeps_what_arrived(
    hub: HubServer, file: RemoteFile, small_disk: Callable[[int], None]
) -> None:
    small_disk(120_000)
    error = failure(file)
    assert "disk is full" in str(error) and "goes on where it stopped" in str(error)
    kept = file.part.stat().st_size
    assert 0 < kept <= 120_000 and not file.local.exists()
    small_disk(1 << 40)
    hub.forget()
    assert fetch(file)[0].read_bytes() == CONTENT
    assert hub.bytes_sent(NAME) == len(CONTENT) - kept


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[None]:
    """Without root's right to write everywhere, the right to look everywhere kept."""
    if os.geteuid() != 0:
        yield
        return
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(0o755)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_cache_is_said_and_still_used(
    hub: HubServer, tmp_path: Path, nobody: None
) -> None:
    hub.add(REPO, {NAME: CONTENT, "b.gguf": b"G"})
    here, new = remote(NAME), remote("b.gguf")
    # fetched by whoever may write
    if os.getuid() == 0:
        os.seteuid(0)
    fetch(here)
    shutil.rmtree(tmp_path / "hf" / "hub" / ".locks")  # as in a cache that was copied here
    for path in (tmp_path / "hf").rglob("*"):
        if path.is_dir():
            path.chmod(0o555)
    (tmp_path / "hf").chmod(0o555)
    if os.getuid() == 0:
        os.seteuid(65534)
    hub.forget()
    assert fetch(here)[0].read_bytes() == CONTENT
    assert not hub.requests
    error = failure(new)
    assert "cannot be written: Permission denied" in str(error) and "HF_HUB_CACHE" in str(error)


def test_offline_what_is_here_is_here_and_the_rest_is_said(
    hub: HubServer, file: RemoteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    error = failure(file)
    assert isinstance(error, HubUnreachable) and "HF_HUB_OFFLINE" in str(error)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    fetch(file)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(file)[0].read_bytes() == CONTENT


def test_a_proxy_is_gone_through(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add(REPO, {NAME: CONTENT})
    monkeypatch.setattr(constants, "ENDPOINT", "http://hub.invalid")
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(hub.url, "http://hub.invalid")
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setenv("HTTP_PROXY", hub.url)
    assert fetch(remote(NAME))[0].read_bytes() == CONTENT
    assert {r.headers["Host"] for r in hub.asked("m-GGUF/resolve/")} == {"hub.invalid"}


def test_a_gated_file_arrives_once_access_is_granted(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = hub.add(REPO, {NAME: CONTENT}, gated="manual")
    file = remote(NAME)
    assert "is gated" in str(failure(file))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert "no access" in str(failure(file))
    repo.granted = True
    assert fetch(file)[0].read_bytes() == CONTENT


# ---- several at once ---------------------------------------------------------------------------


def test_files_come_in_parallel_and_one_that_fails_stops_no_other(hub: HubServer) -> None:
    hub.add(REPO, {f"{x}.gguf": x.encode() * 50_000 for x in "abcde"})
    hub.fail("/cdn/me/m-GGUF/b.gguf", status=403, times=9)
    # Two files are begun and held before either may end: they are on their way together.
    hub.fail("/cdn/me/m-GGUF/a.gguf", hold_at=10_000)
    hub.fail("/cdn/me/m-GGUF/c.gguf", hold_at=10_000)
    seen: list[Progress] = []

    def report(progress: Progress) -> None:
        seen.append(progress)
        if sum(f.done == 10_000 for f in progress.files) == 2:
            hub.release.set()

    wanted = files.resolve(REPO).files
    with pytest.raises(HubError, match="b.gguf"):
        download.download(wanted, report, backoff=QUICK)
    assert [f.is_here for f in wanted] == [True, False, True, True, True]
    states = [f.state for f in seen[-1].files]
    assert states == ["done", "failed", "done", "done", "done"]
    assert seen[-1].done == 200_000 and seen[-1].size == 250_000
    assert len(hub.asked("a.gguf")) == len(hub.asked("c.gguf")) == 2, "neither was cut and resumed"


def test_of_two_pulls_at_once_the_second_waits_and_finds_it_done(
    hub: HubServer, file: RemoteFile
) -> None:
    hub.fail("/cdn/", hold_at=100_000)
    results: list[Path] = []
    first = threading.Thread(target=lambda: results.extend(fetch(file)))
    first.start()
    assert hub.held.wait(FOREVER)

    def report(progress: Progress) -> None:
        if "another process" in progress.files[0].note:
            hub.release.set()

    results += fetch(file, report=report)
    first.join()
    assert results == [file.local] * 2 and file.local.read_bytes() == CONTENT
    assert hub.bytes_sent(NAME) == len(CONTENT)


def test_waiting_for_another_pull_can_be_cancelled(file: RemoteFile) -> None:
    file.lock.parent.mkdir(parents=True)
    cancel = threading.Event()
    with FileLock(file.lock), pytest.raises(DownloadCancelled):
        fetch(file, cancel=cancel, report=lambda p: cancel.set() if p.files[0].note else None)


def test_progress_tells_bytes_speed_and_what_is_left(
    hub: HubServer, file: RemoteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    meter = download._Meter()
    monkeypatch.setattr(download.time, "monotonic", lambda: clock[0])
    moving = download._Transfer(file, threading.Event(), QUICK)
    moving.state = "downloading"
    assert meter.read([moving]).speed is None
    for second in range(1, 21):
        clock[0] = second
        moving.received = moving.done = second * 10_000
        progress = meter.read([moving])
    assert progress.speed == progress.files[0].speed == 10_000
    assert progress.eta == 10
    for second in range(21, 31):
        clock[0] = second
        stalled = meter.read([moving])
    assert stalled.speed == 0 and stalled.eta is None
