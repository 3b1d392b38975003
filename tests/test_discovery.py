"""What is found of models on a machine, in the places of other programs and the user's own."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from tiny_drafters import tiny_eagle3
from tiny_models import tiny_mtp

from localspec import discovery, gguf_header, resources
from localspec.catalog import resolve_target
from localspec.discovery import LocalFile, Survey, survey
from localspec.gguf_header import check_model_file, glance
from localspec.reference import HubReference

DRAFT = resources.asset("demo/smollm2-135m-draft-q4_0.gguf")
EAGLE3 = resources.asset("demo/smollm2-135m-eagle3-q4_0.gguf")
DSPARK = resources.asset("demo/smollm2-135m-dspark-q4_0.gguf")
MTP = resources.asset("demo/tinyqwen35-mtp-q4_0.gguf")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without anything; the places are where each program has them by default."""
    for name in (
        "HF_HOME",
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "XDG_CACHE_HOME",
        "LLAMA_CACHE",
        "OLLAMA_MODELS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def put(path: Path, content: Path = DRAFT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(content, path)
    return path


def on_hub(home: Path, repo: str, file: str, content: Path = DRAFT, commit: str = "c0ffee") -> Path:
    """As the Hub's client lays it: the content in blobs, a link in the snapshot."""
    folder = home / ".cache/huggingface/hub" / f"models--{repo.replace('/', '--')}"
    blob = put(folder / "blobs" / f"b{abs(hash((file, content.name)))}", content)
    link = folder / "snapshots" / commit / file
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(blob, link.parent))
    return link


def on_ollama(home: Path, name: str, content: Path, kind: str = "model") -> Path:
    models = home / ".ollama/models"
    digest = f"{abs(hash(name)):064x}"[:64]
    blob = put(models / "blobs" / f"sha256-{digest}", content)
    family, _, tag = name.partition(":")
    manifest = models / "manifests/registry.ollama.ai/library" / family / tag
    manifest.parent.mkdir(parents=True, exist_ok=True)
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "1" * 64},
        {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{digest}"},
    ]
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return blob


def by_name(found: Survey) -> dict[str, LocalFile]:
    return {f.name: f for f in found.files}


def test_the_places_of_other_programs_are_looked_through(home: Path, tmp_path: Path) -> None:
    hub = on_hub(home, "owner/Repo-GGUF", "Model-Q4_0.gguf")
    llama = put(home / ".cache/llama.cpp/owner_Other_Other-Q4_0.gguf", EAGLE3)
    studio = put(home / ".lmstudio/models/pub/Name-GGUF/Name-Q8_0.gguf", DSPARK)
    ollama = on_ollama(home, "tiny:135m", MTP)
    mine = put(tmp_path / "my models/Mein Modell-Q4_0.gguf", tiny_mtp(tmp_path / "t.gguf"))
    found = by_name(survey([mine.parent]))
    assert {n: (f.path, f.owner, f.kind) for n, f in found.items()} == {
        "hf:owner/Repo-GGUF/Model-Q4_0.gguf": (hub, "Hugging Face", "model"),
        "owner_Other_Other-Q4_0": (llama, "llama.cpp", "drafter"),
        "Name-Q8_0": (studio, "LM Studio", "drafter"),
        "ollama:tiny:135m": (ollama, "Ollama", "model"),
        "Mein Modell-Q4_0": (mine, str(mine.parent), "model"),
    }
    for words in ("ollama:tiny:135m", str(ollama)):  # and not its blob's digest
        assert resolve_target(words).name == "ollama:tiny:135m"
    assert [found[n].size for n in sorted(found)] == [
        found[n].path.stat().st_size for n in sorted(found)
    ]


def test_what_a_program_was_told_to_use_instead(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setenv("LLAMA_CACHE", str(elsewhere / "llama"))
    put(elsewhere / "llama/a.gguf")
    pointer = home / ".lmstudio-home-pointer"
    pointer.write_text(str(elsewhere / "studio"))
    put(elsewhere / "studio/models/o/r/b.gguf", EAGLE3)
    (elsewhere / "studio/settings.json").write_text(
        json.dumps({"downloadsFolder": str(elsewhere / "down")})
    )
    put(elsewhere / "down/o/r/c.gguf", DSPARK)
    monkeypatch.setenv("OLLAMA_MODELS", str(elsewhere / "ollama"))
    assert sorted(by_name(survey())) == ["a", "b", "c"]


def test_parts_drafters_and_the_heads_of_models_are_told_apart(
    home: Path, models: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    put(folder / "plain-Q4_0.gguf")
    put(folder / "eagle3-x.gguf", EAGLE3)
    put(folder / "dspark-x-Q4_0.gguf", DSPARK)
    put(folder / "own.gguf", tiny_mtp(models / "d-own.gguf"))
    put(folder / "trunk.gguf", tiny_mtp(models / "d-trunk.gguf", own_heads=False))
    put(folder / "mtp-heads.gguf", tiny_mtp(models / "d-heads.gguf", trunk=False))
    put(folder / "mmproj-F16.gguf")
    found = by_name(survey([folder]))
    assert {n: (f.kind, f.method, f.has_mtp) for n, f in found.items()} == {
        "plain-Q4_0": ("model", None, False),
        "eagle3-x": ("drafter", "eagle3", False),
        "dspark-x-Q4_0": ("drafter", "dspark", False),
        "own": ("model", None, True),
        "trunk": ("model", None, False),
        "mtp-heads": ("drafter", "mtp", False),
        "mmproj-F16": ("mmproj", None, False),
    }
    assert found["plain-Q4_0"].quant == "Q4_0"


def test_dead_links_and_other_files_are_named_and_cost_nothing_else(
    home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    good = put(folder / "good.gguf")
    (folder / "dead.gguf").symlink_to(folder / "gone")
    (folder / "page.gguf").write_text("<!DOCTYPE html><html></html>")
    (folder / "empty.gguf").touch()
    (folder / "half-00002-of-00002.gguf").write_bytes(good.read_bytes())
    (folder / "cut.gguf").write_bytes(good.read_bytes()[:300])
    (folder / "folder.gguf").mkdir()
    on_hub(home, "o/r", "lost.gguf").resolve().unlink()
    found = by_name(survey([folder, tmp_path / "nowhere"]))
    problems = {n.rpartition("/")[2]: f.problem for n, f in found.items() if f.kind == "broken"}
    assert "is a dead link" in problems["dead"]
    assert "is a dead link" in problems["lost.gguf"]
    assert "is a web page" in problems["page"]
    assert "is empty" in problems["empty"]
    assert "1 of 2 parts are there" in problems["half"]
    assert "truncated" in problems["cut"]
    assert [n for n, f in found.items() if f.kind == "model"] == ["good"]
    notes = survey([tmp_path / "nowhere"]).notes
    assert notes == (f"The folder {tmp_path / 'nowhere'} of your catalogue is not there.",)


def test_a_file_counts_once_however_it_is_reached(home: Path, tmp_path: Path) -> None:
    hub = on_hub(home, "o/r", "x-Q4_0.gguf")
    again = hub.parents[1] / "other" / "x-Q4_0.gguf"
    again.parent.mkdir()
    again.symlink_to(hub.resolve())
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "link.gguf").symlink_to(hub)
    (folder / "loop").symlink_to(folder)
    copy = put(folder / "deep/x-Q4_0.gguf")
    other = put(folder / "other/x-Q4_0.gguf", EAGLE3)
    found = survey([folder, folder]).files
    assert {(f.path, f.copies) for f in found} == {(hub, (copy,)), (other, ())}


def test_two_files_of_one_name_are_called_by_their_paths(tmp_path: Path) -> None:
    a, b = put(tmp_path / "m/a/x.gguf"), put(tmp_path / "m/b/x.gguf", EAGLE3)
    assert {f.name for f in survey([tmp_path / "m"]).files} == {str(a), str(b)}


def test_a_split_model_is_one(tmp_path: Path) -> None:
    raw = DRAFT.read_bytes()
    for i in (1, 2):
        (tmp_path / f"x-Q4_0-0000{i}-of-00002.gguf").write_bytes(raw)
    (found,) = survey([tmp_path]).files
    assert (found.name, found.size, found.kind) == ("x-Q4_0", 2 * len(raw), "model")
    assert found.path.name == "x-Q4_0-00001-of-00002.gguf"
    assert discovery.size_of(found.path) == 2 * len(raw)


def test_what_llama_cpp_cannot_load_of_ollamas_is_said(home: Path, tmp_path: Path) -> None:
    raw = DRAFT.read_bytes()
    own = tmp_path / "vision.gguf"
    own.write_bytes(raw.replace(b"blk.0.attn_q.weight", b"v.k.0.attn_q.weight", 1))
    on_ollama(home, "vision:latest", own)
    on_ollama(home, "template:only", DRAFT, kind="adapter")
    (home / ".ollama/models/manifests/registry.ollama.ai/library/bad").mkdir()
    (home / ".ollama/models/manifests/registry.ollama.ai/library/bad/x").write_text("{]")
    (found,) = survey().files
    assert (found.name, found.kind) == ("ollama:vision:latest", "broken")
    assert "holds the vision part" in found.problem


def test_only_the_beginning_of_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "x.gguf")
    monkeypatch.setattr(discovery, "check_model_file", lambda path: pytest.fail(f"read {path}"))
    read = 0

    class Counting(gguf_header._Reader):
        def _fill(self, n: int) -> None:
            nonlocal read
            super()._fill(n)
            read += len(self._window)

    monkeypatch.setattr(gguf_header, "_Reader", Counting)
    (found,) = survey([tmp_path]).files
    assert found.n_vocab == 49152
    assert 0 < read <= 1 << 16 < DRAFT.stat().st_size


def test_looking_into_headers_has_an_end(
    tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether MTP layers are there needs the whole header; past the time it is left open."""
    put(tmp_path / "m/own.gguf", tiny_mtp(models / "d-own2.gguf"))
    monkeypatch.setattr(discovery, "_LOOK_SECONDS", 0.0)
    (found,) = survey([tmp_path / "m"]).files
    assert (found.kind, found.has_mtp) == ("model", None)
    monkeypatch.setattr(discovery, "_ENTRIES_LIMIT", 1)
    put(tmp_path / "m/z.gguf")
    cut = survey([tmp_path / "m"])
    assert len(cut.files) == 1
    assert "more than 1 files" in cut.notes[0]


def test_a_reference_is_found_where_any_program_downloaded_it(home: Path) -> None:
    reference = HubReference("o/r", "x-Q4_0.gguf")
    assert discovery.find(reference) is None
    llama = put(home / ".cache/llama.cpp/o_r_x-Q4_0.gguf")
    assert discovery.find(reference) == llama
    studio = put(home / ".lmstudio/models/o/r/x-Q4_0.gguf")
    assert discovery.find(reference) in (llama, studio)
    hub = on_hub(home, "o/r", "x-Q4_0.gguf")
    assert discovery.find(reference) == hub


@pytest.mark.parametrize("file", [DRAFT, EAGLE3, DSPARK, MTP])
def test_a_glance_agrees_with_the_whole_header(file: Path) -> None:
    seen, header = glance(file), check_model_file(file)
    assert (seen.arch, seen.name, seen.n_vocab) == (header.arch, header.name, header.n_vocab)
    assert (seen.method is not None) == header.is_drafter_only
    assert header.file_type == "Q4_0"
    assert seen.tokenizer == header.text("tokenizer.ggml.model")


def test_a_tiny_drafter_is_seen(tmp_path: Path) -> None:
    assert glance(tiny_eagle3(tmp_path / "e.gguf")).method == "eagle3"
