"""Paths as people write them: whatever is written is answered with a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec import catalog, cli, discovery
from localspec.bench import history, report, resume, workloads
from localspec.catalogue_file import read_catalogue
from localspec.chat.command import _file as file_of_chat
from localspec.errors import CatalogError, LocalspecError, UsageError
from localspec.models import own
from localspec.paths import kind_here, kind_of, real, written

WRONG = {
    "nobody's home": "~nobody-at-all/x",
    "too long": "y" * 300,
    "a NUL": "a\0b",
    "half a character": "\ud800",
    "a circle": "circle",
    "below a file": "file/x",
}
READERS: dict[str, Callable[[str], object]] = {
    "a workload": lambda words: workloads.load((words,)),
    "a model": catalog.resolve_target,
    "a past benchmark": history.read,
    "what is resumed": resume.read,
    "what is added": lambda words: own.add(words, ()),
    "an output": lambda words: report.check_writable({"--json": words}),
    "what is written": lambda words: report.write(words, "x"),
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    for name in ("circle", "circle.txt", "circle.gguf"):
        (tmp_path / name).symlink_to(name)


def test_a_path_is_what_is_written_with_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert written("~/a b.txt") == tmp_path / "a b.txt"
    assert written("a/~b") == Path("a/~b")
    assert written(b"\xff".decode("utf-8", "surrogateescape")).name == "\udcff"  # there are such


def test_the_kind_is_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dead").symlink_to("nothing")
    kinds = [kind_of(tmp_path / name) for name in ("link", "", "dead", "no", "file/below")]
    assert kinds == ["file", "folder", None, None, None]
    assert kind_of(Path(os.devnull)) == "other"
    assert [kind_here(words) for words in WRONG.values()] == [None] * len(WRONG)
    assert real(tmp_path / "link") == (tmp_path / "file").resolve()
    assert real(tmp_path / "circle").parent == tmp_path.resolve()


@pytest.mark.parametrize("what", READERS)
@pytest.mark.parametrize("ending", ["", ".txt", ".gguf"])
@pytest.mark.parametrize("wrong", WRONG)
def test_whatever_is_written_gets_a_sentence(wrong: str, ending: str, what: str) -> None:
    with pytest.raises(LocalspecError) as refused:
        READERS[what](WRONG[wrong] + ending)
    assert refused.value.message.endswith(".")
    assert refused.value.hint.endswith((".", "?"))


@pytest.mark.parametrize("wrong", WRONG)
def test_a_drafter_that_is_no_path_gets_a_sentence_too(wrong: str, tiny_target: Path) -> None:
    target = catalog.resolve_target(str(tiny_target))
    for words in (WRONG[wrong], f"{WRONG[wrong]}.gguf", f"ngram+{WRONG[wrong]}.gguf"):
        with pytest.raises(LocalspecError):
            catalog.resolve_drafters(target, (words,))


@pytest.mark.parametrize("command", ["/save", "/load"])
def test_the_file_of_a_conversation_may_be_none(command: str, tmp_path: Path) -> None:
    for wrong in ("nobody's home", "a NUL"):
        with pytest.raises(UsageError):
            file_of_chat(WRONG[wrong], command)
    assert file_of_chat("'a b.json'", command) == Path("a b.json")


def test_the_sentence_says_what_to_write_in_place_of_a_home_that_is_not_there() -> None:
    with pytest.raises(UsageError) as refused:
        written("~nobody-at-all/x.gguf")
    assert str(refused.value) == (
        "There is no home folder ~nobody-at-all, with which ~nobody-at-all/x.gguf begins. "
        f"Write the whole path, or .{os.sep}~nobody-at-all/x.gguf for what lies here."
    )
    with pytest.raises(UsageError) as refused:
        kind_of(Path("y" * 3000))
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "words",
    [
        "bench --model ~nobody-at-all/x.gguf",
        "bench --model demo --workload ~nobody-at-all",
        "bench --model demo --json ~nobody-at-all/r.json",
        "bench --resume ~nobody-at-all/r.json",
        "models add ~nobody-at-all/x.gguf",
        "models inspect ~nobody-at-all/x.gguf",
        "chat --model ~nobody-at-all/x.gguf",
        "history show ~nobody-at-all/r.json",
        "compare ~nobody-at-all/r.json last",
        "run --model demo @~nobody-at-all/p.txt",
        "doctor --offline --report ~nobody-at-all/r.zip",
    ],
)
def test_the_command_line_says_it_and_ends_with_2(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(words.split())
    said = capsys.readouterr().err
    assert left.value.code == 2, said
    assert "There is no home folder ~nobody-at-all" in said


def test_a_long_list_is_no_file() -> None:
    from localspec.commands import _words

    many = ",".join(f"drafter-{i}" for i in range(60))
    assert len(_words([many])) == 60


def test_a_catalogue_names_the_line_of_such_a_path(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text('[models.x]\ntitle = "X"\nsource = { path = "~nobody-at-all/x.gguf" }\n')
    with pytest.raises(CatalogError, match=r"line 3: .*path: there is no home folder ~nobody-at"):
        read_catalogue(file)
    file.write_text('folders = ["~nobody-at-all/models"]\n')
    with pytest.raises(CatalogError, match="line 1: .*there is no home folder ~nobody-at-all"):
        read_catalogue(file)


def test_a_catalogue_lists_what_it_can_where_a_file_cannot_be_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(
        f'folders = ["{"y" * 300}"]\n[models.x]\ntitle = "X"\n'
        f'source = {{ path = "{"y" * 300}.gguf" }}\n'
    )
    read = catalog.Catalogue([file])
    (listing,) = read.listings()
    assert listing.path is None
    with pytest.raises(LocalspecError, match="cannot be looked at"):
        read.locate("x")
    assert discovery.survey(read.folders).notes


@pytest.mark.parametrize("name", ["HF_HOME", "LLAMA_CACHE", "OLLAMA_MODELS"])
def test_a_folder_of_the_environment_that_is_none_is_said(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv(name, "~nobody-at-all")
    with pytest.raises(UsageError, match="~nobody-at-all"):
        discovery.survey()


AS_ANOTHER = """
import os, sys
from pathlib import Path
from localspec import catalog, discovery, reference
from localspec.bench import history, report, resume, workloads
from localspec.errors import LocalspecError
from localspec.hub import download, stored
from localspec.hub.leftovers import leftovers
from localspec.models import own
if os.getuid() == 0:
    os.setuid(65534)
closed = sys.argv[1]
os.environ["HF_HOME"] = os.environ["OLLAMA_MODELS"] = closed + "/models"
os.environ.pop("HF_HUB_CACHE", None)
for words in (closed, closed + "/x", closed + "/x.txt", closed + "/x.gguf"):
    for read in (
        lambda w: workloads.load((w,)),
        catalog.resolve_target,
        lambda w: own.add(w, ()),
        history.read,
        resume.read,
        lambda w: report.check_writable({"--json": w}),
        lambda w: report.write(w, "x"),
    ):
        try:
            read(words)
        except LocalspecError as error:
            print(error)
        else:
            print("read", words)
discovery.survey((Path(closed, "models"),))
reference.find_cached(reference.parse_reference("hf:me/m"))
assert not [*stored.everything(), *leftovers("me/m")]
download.check_room(())
"""


@pytest.mark.skipif(os.name == "nt", reason="of rights as POSIX has them")
def test_what_is_somebody_elses_gets_a_sentence_too(tmp_path: Path) -> None:
    """As an ordinary user: root may look everywhere."""
    closed = Path("/root") if os.getuid() == 0 else tmp_path / "closed"
    closed.mkdir(exist_ok=True)
    if os.getuid():
        closed.chmod(0)
    if os.getuid() == 0 and closed.stat().st_mode & 0o077:
        pytest.skip("root's home is open to all here")
    made = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER, str(closed)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    )
    if os.getuid():
        closed.chmod(0o700)
    assert made.returncode == 0, made.stderr
    lines = made.stdout.splitlines()
    assert len(lines) == 28
    assert [line for line in lines if line.startswith("read")] == []
