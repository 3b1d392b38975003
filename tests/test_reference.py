"""The words for a model on the Hub, and what of it the cache of this machine has."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.reference import (
    HubReference,
    find_cached,
    hub_cache,
    parse_reference,
    reference_of,
    title_of,
)

REPO = "unsloth/Qwen3.6-27B-MTP-GGUF"
FILE = "Qwen3.6-27B-Q4_K_M.gguf"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (f"hf:{REPO}", HubReference(REPO)),
        (f"hf:{REPO}:Q4_K_M", HubReference(REPO, quant="Q4_K_M")),
        (f"HF:{REPO}/{FILE}", HubReference(REPO, FILE)),
        ("hf:o/r/Q8_0/x-00001-of-00002.gguf", HubReference("o/r", "Q8_0/x-00001-of-00002.gguf")),
        (f"https://huggingface.co/{REPO}", HubReference(REPO)),
        (f"https://huggingface.co/{REPO}/tree/main", HubReference(REPO)),
        (f"https://huggingface.co/{REPO}/tree/main/Q8_0", HubReference(REPO, quant="Q8_0")),
        (f"https://huggingface.co/{REPO}/blob/main/{FILE}", HubReference(REPO, FILE)),
        (f"https://huggingface.co/{REPO}/resolve/main/{FILE}?download=true",
         HubReference(REPO, FILE)),
        (f"https://huggingface.co/{REPO}/resolve/v1/a%20b.gguf",
         HubReference(REPO, "a b.gguf", revision="v1")),
        (f"https://hf.co/{REPO}", HubReference(REPO)),
    ],
)  # fmt: skip
def test_what_words_mean(words: str, meant: HubReference) -> None:
    assert parse_reference(words) == meant


def test_what_is_written_is_read_again() -> None:
    for meant in (
        HubReference(REPO),
        HubReference(REPO, FILE),
        HubReference(REPO, quant="Q4_K_M"),
        HubReference(REPO, "a b.gguf", revision="refs/pr/1"),
        HubReference(REPO, revision="v1"),
    ):
        assert parse_reference(str(meant)) == meant


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("demo", "demo"),
        ("hf:me/m-GGUF/a.gguf", "hf:me/m-GGUF/a.gguf"),
        ("hf:me", "hf:me"),
        ("/models/a-Q4_0.gguf", "a-Q4_0"),
        ("/c/models--me--m-GGUF/snapshots/0ab/Q4/a.gguf", "hf:me/m-GGUF/Q4/a.gguf"),
        (
            "https://huggingface.co/me/m/blob/v1/a.gguf",
            "https://huggingface.co/me/m/blob/v1/a.gguf",
        ),
    ],
)
def test_a_person_is_told_of_a_model_in_short(words: str, title: str) -> None:
    assert title_of(words) == title


@pytest.mark.parametrize("words", ["demo", "models/x.gguf", "C:\\x.gguf", "hfx:o/r"])
def test_names_and_paths_are_no_references(words: str) -> None:
    assert parse_reference(words) is None


@pytest.mark.parametrize(
    "words",
    [
        "hf:",
        "hf:owner",
        "hf:owner/repo:",
        "hf:owner/repo/README.md",
        "hf:ow ner/repo",
        "hf:../..",
        "hf:o/r/../../x.gguf",
        "https://example.com/o/r",
        "https://huggingface.co/datasets/o/r",
        "https://huggingface.co/o",
        "https://huggingface.co/o/r/blob/main/README.md",
    ],
)
def test_a_wrong_reference_shows_the_form(words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_reference(words)
    assert "hf:owner/repo:Q4_K_M" in caught.value.hint


def test_a_mirrors_address_is_the_hubs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/")
    assert parse_reference(f"https://mirror.example/{REPO}") == HubReference(REPO)


# ---- the cache -------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def put(cache: Path, file: str, commit: str = "c0ffee", *, main: bool = True) -> Path:
    folder = cache / f"models--{REPO.replace('/', '--')}"
    path = folder / "snapshots" / commit / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF")
    if main:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(commit)
    return path


def found(words: str) -> list[Path]:
    reference = parse_reference(words)
    assert reference is not None
    return [path for path, _ in find_cached(reference)]


def test_the_cache_is_where_the_hubs_own_client_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert hub_cache() == Path.home() / ".cache/huggingface/hub"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert hub_cache() == Path("/x/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "/h")
    assert hub_cache() == Path("/h/hub")
    monkeypatch.setenv("HF_HUB_CACHE", "/c")
    assert hub_cache() == Path("/c")


def test_files_are_found_by_name_and_quantisation_in_any_case(cache: Path) -> None:
    q4, q8 = put(cache, FILE), put(cache, "Qwen3.6-27B-Q8_0.gguf")
    mtp = put(cache, "mtp-Qwen3.6-27B-Q4_0.gguf")
    assert found(f"hf:{REPO}/{FILE}") == [q4]
    assert found(f"hf:{REPO}/{FILE.lower()}") == [q4]
    assert found(f"hf:{REPO}:q8_0") == [q8]
    assert found(f"hf:{REPO}:Q4_0") == []  # a drafter is no quantisation of the model
    assert found(f"hf:{REPO}/{mtp.name}") == [mtp]
    assert found(f"hf:{REPO}") == [q4, q8]
    assert found("hf:unsloth/other") == []


def test_dead_links_and_halves_of_split_models_are_not_here(cache: Path) -> None:
    first = put(cache, "Q8_0/x-Q8_0-00001-of-00002.gguf")
    dead = first.with_name("x-Q4_0.gguf")
    dead.symlink_to(cache / "gone")
    assert found(f"hf:{REPO}") == []
    put(cache, "Q8_0/x-Q8_0-00002-of-00002.gguf")
    assert found(f"hf:{REPO}:Q8_0") == [first]
    assert found(f"hf:{REPO}/Q8_0/x-Q8_0-00002-of-00002.gguf") == [first]


def test_the_current_revision_comes_before_others(cache: Path) -> None:
    old = put(cache, FILE, "old", main=False)
    only_old = put(cache, "Qwen3.6-27B-Q6_K.gguf", "old", main=False)
    assert found(f"hf:{REPO}:Q4_K_M") == [old]
    new = put(cache, FILE, "new")
    assert found(f"hf:{REPO}:Q4_K_M") == [new]
    assert found(f"hf:{REPO}:Q6_K") == [only_old]
    assert found(f"https://huggingface.co/{REPO}/resolve/old/{FILE}") == [old]
    assert reference_of(new) == HubReference(REPO, FILE)
    assert reference_of(Path("/models/x.gguf")) is None
