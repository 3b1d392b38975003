"""``models pull``, ``verify`` and ``rm`` as a person types them."""

from __future__ import annotations

import io
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hub_server import HubServer
from huggingface_hub import constants, scan_cache_dir
from impatience import press_ctrl_c, slow_to_end
from patience import FOREVER
from rich.console import Console

from localspec import catalog, cli
from localspec.hub import client, command, files
from localspec.hub.download import FileProgress, Progress
from localspec.hub.files import RemoteFile
from localspec.hub.progress import Lines
from localspec.reference import hub_cache

REPO = "me/m-GGUF"
CONTENT = random.Random(2).randbytes(400_000)
SPLIT = {f"Q8_0/m-Q8_0-0000{i}-of-00003.gguf": CONTENT[i * 9 :] for i in (1, 2, 3)}
FILES = {
    "README.md": b"# m",
    "m-Q4_K_M.gguf": CONTENT,
    "m-Q2_K.gguf": CONTENT[:200_000],
    **SPLIT,
    "mmproj-m-F16.gguf": b"V" * 500,
    "mtp-m-Q4_K_M.gguf": b"D" * 900,
    "mtp-m-Q8_0.gguf": b"D" * 1800,
    "m-eagle3-Q8_0.gguf": b"E" * 700,
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BACKOFF", client.Backoff(first_s=0.001))
    monkeypatch.setattr(command, "check_usable", lambda wanted: None)  # any bytes do here


@pytest.fixture
def repo(hub: HubServer) -> HubServer:
    hub.add(REPO, FILES)
    return hub


Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """``localspec models ...``: its exit code, stdout and stderr."""

    def say(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main(["models", *words])
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    return say


def here() -> set[str]:
    return {
        p.relative_to(hub_cache()).as_posix().split("/", 3)[3]
        for p in hub_cache().glob("models--*/snapshots/*/**/*.gguf")
        if p.is_file()
    }


def remote(path: str) -> RemoteFile:
    return next(f for f in files.resolve(REPO).files if f.path == path)


# ---- pull ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([f"hf:{REPO}:Q4_K_M"], {"m-Q4_K_M.gguf", "mtp-m-Q8_0.gguf"}),
        ([f"hf:{REPO}", "--quant", "q4_k_m", "-d", "none"], {"m-Q4_K_M.gguf"}),
        ([f"hf:{REPO}/M-q2_k.GGUF", "-d", "none"], {"m-Q2_K.gguf"}),
        ([f"hf:{REPO}:q8_0", "-d", "none"], set(SPLIT)),
        ([f"hf:{REPO}/Q8_0/m-Q8_0-00002-of-00003.gguf", "-d", "mtp"],
         {*SPLIT, "mtp-m-Q8_0.gguf"}),
        ([f"hf:{REPO}:Q2_K", "-d", "all"],
         {"m-Q2_K.gguf", "mtp-m-Q8_0.gguf", "m-eagle3-Q8_0.gguf"}),
        ([f"hf:{REPO}:Q2_K", "-d", f"hf:{REPO}/mtp-m-Q4_K_M.gguf"],
         {"m-Q2_K.gguf", "mtp-m-Q4_K_M.gguf"}),
        ([f"hf:{REPO}:Q2_K", "-d", "MTP-m-Q4_K_M.gguf"], {"m-Q2_K.gguf", "mtp-m-Q4_K_M.gguf"}),
        ([f"hf:{REPO}:Q2_K", "-d", "eagle3"], {"m-Q2_K.gguf", "m-eagle3-Q8_0.gguf"}),
        ([f"hf:{REPO}/mtp-m-Q8_0.gguf"], {"mtp-m-Q8_0.gguf"}),
    ],
)  # fmt: skip
def test_what_is_pulled(repo: HubServer, say: Say, words: list[str], found: set[str]) -> None:
    code, out, _ = say("pull", *words)
    assert code == 0
    assert here() == found
    for line in out.splitlines():
        assert Path(re.split("  +", line)[1]).is_file()


def test_all_drafters_of_a_repository_without_any_are_none_and_that_is_said(
    hub: HubServer, say: Say
) -> None:
    hub.add(REPO, {"m-Q4_K_M.gguf": CONTENT[:900]})
    code, out, err = say("pull", f"hf:{REPO}:Q4_K_M", "-d", "all")
    assert (code, len(out.splitlines())) == (0, 1)
    assert (
        f"There is no drafter beside it; find others with: localspec models drafters hf:{REPO}"
        in err
    )
    assert "no drafter beside" not in say("pull", f"hf:{REPO}:Q4_K_M")[2]


def test_a_pull_says_what_it_brings_and_where_it_lies(repo: HubServer, say: Say) -> None:
    code, out, err = say("pull", f"hf:{REPO}:q8_0")
    assert code == 0
    assert f"model: hf:{REPO}/Q8_0/m-Q8_0-00001-of-00003.gguf, 1.2 MB, 3 files" in err
    assert f"drafter mtp: hf:{REPO}/mtp-m-Q8_0.gguf, 1.8 kB" in err
    assert "m-Q8_0-00003-of-00003.gguf: done" in err and "\x1b" not in err + out
    model, drafter = out.splitlines()
    assert model == f"model  {remote('Q8_0/m-Q8_0-00001-of-00003.gguf').local}"
    assert drafter == f"drafter mtp  {remote('mtp-m-Q8_0.gguf').local}"
    code, again, err = say("pull", f"hf:{REPO}:q8_0")
    assert (code, again) == (0, out) and "here already" in err
    assert say("pull", f"hf:{REPO}:q8_0", "-q") == (0, out, "")


def test_without_a_quantisation_the_choice_is_shown(repo: HubServer, say: Say) -> None:
    code, out, err = say("pull", f"hf:{REPO}")
    assert code == 2
    assert [line.split() for line in out.splitlines()] == [
        ["Q2_K", "200.0", "kB"],
        ["Q4_K_M", "400.0", "kB", "recommended"],
        ["Q8_0", "1.2", "MB", "3", "files"],
    ]
    assert f"localspec models pull hf:{REPO}:Q4_K_M" in err
    repo.add("me/one", {"one.gguf": b"G"})
    assert say("pull", "hf:me/one")[0] == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["hf:me/m-GUFF"], 1, f"Did you mean {REPO}?"),
        ([f"hf:{REPO}:Q5_K_M"], 1, "It has Q2_K, Q4_K_M, Q8_0."),
        ([f"hf:{REPO}/m-Q4_KM.gguf"], 1, "Did you mean m-Q4_K_M.gguf"),
        ([f"hf:{REPO}:Q2_K", "-d", "dflash"], 1, "It has mtp, eagle3, "),
        ([f"hf:{REPO}/m-Q2_K.gguf", "--quant", "Q8_0"], 2, "Leave out one"),
        (["hf:me/text"], 1, "holds no GGUF file"),
        (["hf:me/half"], 1, "lacks some of the files"),
        (["./here.gguf"], 2, "hf:OWNER/REPO"),
    ],
)
def test_what_is_not_there_is_said_with_the_nearest_names(
    repo: HubServer, say: Say, words: list[str], code: int, said: str
) -> None:
    repo.add("me/text", {"model.safetensors": b"S"})
    repo.add("me/half", {"x-00001-of-00002.gguf": b"G"})
    got, out, err = say("pull", *words)
    assert (got, out) == (code, "")
    assert said in err and "Traceback" not in err


@pytest.fixture
def catalogue(repo: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own, with a model of the Hub called ``mine``."""
    own = tmp_path / "models.toml"
    own.write_text(f"""
        [models.mine]
        title = "Mine"
        source = {{ repo = "{REPO}", files = {{ Q2_K = "m-Q2_K.gguf", Q8_0 = "old-Q8_0.gguf" }} }}
        [models.mine.drafters.small]
        method = "draft-model"
        source = {{ repo = "me/small", file = "small.gguf" }}
        recommended = true
        [models.mine.drafters.layers]
        method = "mtp"
        source = {{ repo = "{REPO}", file = "mtp-m-Q4_K_M.gguf" }}
    """)
    monkeypatch.setattr(catalog, "user_file", lambda: own)
    repo.add("me/small", {"small.gguf": b"S" * 300, "large.gguf": b"L"})


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["mine"], {"m-Q2_K.gguf", "small.gguf"}),
        (["mine:q2_k", "-d", "all"], {"m-Q2_K.gguf", "small.gguf", "mtp-m-Q4_K_M.gguf"}),
        (["mine", "--quant", "q2_K", "-d", "mtp"], {"m-Q2_K.gguf", "mtp-m-Q4_K_M.gguf"}),
        (["mine:Q8_0", "-d", "ngram"], set(SPLIT)),  # published anew in parts
        ([f"hf:{REPO}:Q4_K_M"], {"m-Q4_K_M.gguf", "small.gguf"}),  # of a repo that it knows
    ],
)
def test_a_model_of_the_catalogue_comes_with_its_drafters(
    catalogue: None, say: Say, words: list[str], found: set[str]
) -> None:
    code, out, _ = say("pull", *words)
    assert (code, here()) == (0, found)
    assert out.startswith("model  ")


def test_of_the_catalogue_what_is_here_asks_no_hub(
    catalogue: None, repo: HubServer, say: Say
) -> None:
    _, out, _ = say("pull", "mine")
    repo.forget()
    code, again, err = say("pull", "mine")
    assert (code, again) == (0, out) and err.count("here already") == 2
    code, out, err = say("pull", "demo")
    assert code == 0 and "SmolLM2" in out
    assert not repo.requests
    assert say("verify", "mine")[:2] == (0, f"ok        hf:{REPO}/m-Q2_K.gguf\n")
    assert say("rm", "mine", "--yes")[0] == 0
    assert here() == {"small.gguf"}
    code, _, err = say("rm", "demo", "--yes")
    assert code == 2 and "does not come from Hugging Face" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mien"], "Did you mean mine?"),
        (["mine:Q5_K"], "It has Q2_K, Q8_0."),
        (["mine", "-d", "smal"], "Did you mean small? It has small, layers, ngram."),
    ],
)
def test_what_the_catalogue_has_not(catalogue: None, say: Say, words: list[str], said: str) -> None:
    code, out, err = say("pull", *words)
    assert (code, out) == (2, "") and said in err


def test_offline_what_is_here_is_used(
    repo: HubServer, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out, _ = say("pull", f"hf:{REPO}:Q2_K", "-d", "none")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    code, again, err = say("pull", f"hf:{REPO}:Q2_K")
    assert (code, again) == (0, out)
    assert f"forbids asking the Hub about {REPO}. What is here is used" in err
    code, out, err = say("pull", f"hf:{REPO}:Q4_K_M")
    assert (code, out) == (1, "") and "HF_HUB_OFFLINE" in err


def test_files_of_one_quantisation_are_told_apart_by_their_names(hub: HubServer, say: Say) -> None:
    hub.add("o/two-GGUF", {"a-Q4_0.gguf": b"A", "b-Q4_0.gguf": b"BB", "c-Q8_0.gguf": b"CCC"})
    code, out, err = say("pull", "hf:o/two-GGUF")
    assert code == 2
    assert [line.split()[0] for line in out.splitlines()] == ["a-Q4_0.gguf", "b-Q4_0.gguf", "Q8_0"]
    assert err.rstrip().endswith("localspec models pull hf:o/two-GGUF/a-Q4_0.gguf")
    assert say("pull", "hf:o/two-GGUF/a-Q4_0.gguf")[0] == 0


def test_a_failure_is_said_once(repo: HubServer, say: Say) -> None:
    repo.fail("/cdn/", status=403, times=99)
    code, _, err = say("pull", f"hf:{REPO}:Q2_K", "-d", "none")
    assert code == 1 and err.count("The Hub forbids access") == 1


def test_a_first_download_does_not_read_like_a_resumed_one() -> None:
    said = Console(file=io.StringIO(), width=200)
    lines = Lines(said)
    lines(Progress((FileProgress("a.gguf", 11_000, done=4_300, state="downloading"),)))
    lines(Progress((FileProgress("a.gguf", 11_000, 5_000, state="verifying"),)))
    lines(Progress((FileProgress("a.gguf", 11_000, 4_300, state="downloading", kept=4_000),)))
    assert said.file.getvalue().splitlines() == [
        "a.gguf: downloading 11.0 kB",
        "a.gguf: verifying",
        "a.gguf: downloading 11.0 kB, 4.0 of 11.0 kB here",
    ]


def test_faults_are_said_with_what_is_kept(repo: HubServer, say: Say) -> None:
    repo.fail("m-Q4_K_M.gguf", cut_at=100_000)
    repo.fail("/cdn/me/m-GGUF/m-Q4_K_M.gguf", cut_at=100_000)
    repo.fail("/cdn/", status=503, times=99)
    code, _, err = say("pull", f"hf:{REPO}:Q4_K_M", "-d", "none")
    assert code == 1
    assert "again in" in err and "status 503" in err and "m-Q4_K_M.gguf: failed" not in err


# ---- a real process, killed and interrupted ------------------------------------------------------


def start(*words: str, **more: object) -> subprocess.Popen[str]:
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", "localspec", "models", *words],
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},
    )


def test_a_pull_killed_in_the_middle_is_finished_by_the_next(repo: HubServer, say: Say) -> None:
    repo.fail("/cdn/", hold_at=150_000)
    file = remote("m-Q4_K_M.gguf")
    process = start("pull", f"hf:{REPO}:Q4_K_M", "-d", "none")
    assert repo.held.wait(FOREVER)
    while files.arrived(file.part) < 150_000:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.communicate()
    assert here() == set(), "half a file is no model"
    repo.forget()
    assert say("pull", f"hf:{REPO}:Q4_K_M", "-d", "none")[0] == 0
    assert repo.bytes_sent("m-Q4_K_M.gguf") == len(CONTENT) - 150_000
    assert file.local.read_bytes() == CONTENT


def test_ctrl_c_on_a_terminal_keeps_what_arrived_and_says_how_to_go_on(
    repo: HubServer, tmp_path: Path
) -> None:
    repo.fail("/cdn/", hold_at=150_000)
    leader, follower = pty.openpty()
    process = start(
        "pull", f"hf:{REPO}:q4_k_m", "-d", "none",
        stderr=follower, stdin=follower, start_new_session=True,
        env={**slow_to_end(tmp_path), "TERM": "xterm", "COLUMNS": "80"},
    )  # fmt: skip
    os.close(follower)
    assert repo.held.wait(FOREVER)
    seen = b""
    while b"150.0 of 400.0 kB" not in seen:
        assert select.select([leader], [], [], FOREVER)[0]
        seen += os.read(leader, 65536)
    press_ctrl_c(process)
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
    process.communicate()
    os.close(leader)
    assert process.returncode == 130
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert "cancelled, 150.0 of 400.0 kB kept" in text
    assert f"Go on from there with: localspec models pull hf:{REPO}:q4_k_m" in text
    assert remote("m-Q4_K_M.gguf").part.stat().st_size == 150_000


def test_what_was_pulled_runs(repo: HubServer, say: Say, tiny_bytes: Path) -> None:
    repo.add("me/tiny-GGUF", {"tiny-Q8_0.gguf": tiny_bytes})
    assert say("pull", "hf:me/tiny-GGUF")[0] == 0
    words = ["run", "--model", "hf:me/tiny-GGUF", "--max-tokens", "8", "--drafter", "ngram", "hi"]
    done = subprocess.run(
        [sys.executable, "-m", "localspec", *words],
        capture_output=True,
        timeout=FOREVER,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"tok/s" in done.stderr


# ---- verify and rm -------------------------------------------------------------------------------


def test_verify_finds_the_one_wrong_byte(repo: HubServer, say: Say) -> None:
    say("pull", f"hf:{REPO}:Q8_0")
    code, out, err = say("verify")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["ok"] * 4
    blob = remote("Q8_0/m-Q8_0-00002-of-00003.gguf").blob
    with blob.open("r+b") as stream:
        stream.seek(1000)
        stream.write(b"\0\0\0\0")
    repo.forget()
    code, out, err = say("verify", f"hf:{REPO}:Q8_0")
    assert code == 1
    assert [line.split()[0] for line in out.splitlines()] == ["ok", "damaged", "ok"]
    assert (
        "1 of 3 files are not what the Hub has" in err
        and "Get them anew: localspec models pull" in err
    )
    assert not repo.requests, "a blob's name is its checksum"
    assert say("pull", f"hf:{REPO}:Q8_0")[0] == say("verify", f"hf:{REPO}:Q8_0")[0] == 0
    assert repo.bytes_sent("m-Q8_0-00002-of-00003.gguf") == blob.stat().st_size
    assert repo.bytes_sent("m-Q8_0-00001-of-00003.gguf") == 0
    blob.write_bytes(bytes(blob.stat().st_size))
    say("verify")
    say("rm", f"hf:{REPO}:Q8_0", "--yes")
    assert not list(blob.parent.glob("*.damaged"))


def test_what_was_found_damaged_of_the_catalogue_is_fetched_again(
    catalogue: None, repo: HubServer, say: Say
) -> None:
    say("pull", "mine")
    small = next(hub_cache().glob("models--me--small/snapshots/*/small.gguf"))
    for path in (remote("m-Q2_K.gguf").local, small):
        path.write_bytes(bytes(path.stat().st_size))
    assert say("verify")[0] == 1
    assert say("pull", "mine")[0] == say("verify")[0] == 0


def test_verify_asks_the_hub_where_the_cache_has_no_links(
    repo: HubServer, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", True)
    say("pull", f"hf:{REPO}:Q2_K", "-d", "none")
    file = remote("m-Q2_K.gguf")
    assert say("verify", str(file.local))[0] == 0
    file.local.write_bytes(b"x" * 200_000)
    assert say("verify", f"hf:{REPO}:Q2_K")[0] == 1


def test_rm_frees_the_bytes_and_leaves_a_sound_cache(repo: HubServer, say: Say) -> None:
    say("pull", f"hf:{REPO}:Q8_0")
    say("pull", f"hf:{REPO}:Q2_K", "-d", "none")
    code, out, _ = say("rm", f"hf:{REPO}:Q8_0", "--yes")
    assert code == 0 and out.splitlines()[-1] == "1.2 MB freed."
    assert here() == {"m-Q2_K.gguf", "mtp-m-Q8_0.gguf"}
    (info,) = scan_cache_dir(hub_cache()).repos
    assert info.size_on_disk == 200_000 + 1800
    say("rm", f"hf:{REPO}/mtp-m-Q8_0.gguf", "-y")
    say("rm", str(remote("m-Q2_K.gguf").local), "-y")
    assert not list(hub_cache().glob("models--*"))
    code, out, err = say("rm", f"hf:{REPO}:Q2_K", "-y")
    assert (code, out) == (1, "") and "is not in the cache" in err


def test_rm_keeps_content_that_another_name_has(repo: HubServer, say: Say) -> None:
    repo.add(REPO, {"a-Q4_0.gguf": CONTENT, "b-Q8_0.gguf": CONTENT})
    say("pull", f"hf:{REPO}/a-Q4_0.gguf")
    say("pull", f"hf:{REPO}/b-Q8_0.gguf")
    assert say("rm", f"hf:{REPO}/a-Q4_0.gguf", "-y")[1].splitlines()[-1] == "0 B freed."
    assert remote("b-Q8_0.gguf").local.read_bytes() == CONTENT


def test_rm_takes_unfinished_downloads_and_dead_links(repo: HubServer, say: Say) -> None:
    file = remote("m-Q4_K_M.gguf")
    file.part.parent.mkdir(parents=True)
    file.part.write_bytes(CONTENT[:1000])
    code, out, _ = say("rm", f"hf:{REPO}", "-y")
    assert (code, out) == (0, f"1 unfinished file of {REPO}\n1.0 kB freed.\n")
    assert not file.part.exists()
    say("pull", f"hf:{REPO}:Q2_K", "-d", "none")
    file.part.write_bytes(CONTENT[:1000])
    assert say("rm", f"hf:{REPO}:Q4_K_M", "-y")[1].startswith("1 unfinished file of")
    assert here() == {"m-Q2_K.gguf"}, "another quantisation than the one that was named"
    code, _, err = say("rm", f"hf:{REPO}:Q4_K_M", "-y")
    assert code == 1 and "is not in the cache" in err
    say("rm", f"hf:{REPO}:Q2_K", "-y")
    say("pull", f"hf:{REPO}:Q4_K_M", "-d", "none")
    file.blob.unlink()
    assert "its content is gone" in say("verify")[1]
    assert say("rm", f"hf:{REPO}:Q4_K_M", "-y")[0] == 0
    assert not list(hub_cache().glob("models--*"))


def test_rm_asks_first(repo: HubServer, say: Say) -> None:
    say("pull", f"hf:{REPO}:Q2_K", "-d", "none")
    code, _, err = say("rm", f"hf:{REPO}:Q2_K")
    assert code == 2 and "Say --yes" in err
    assert here() == {"m-Q2_K.gguf"}
