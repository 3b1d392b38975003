"""The commands about models as a person types them, against a Hub on the loopback."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hub_server import HubServer
from huggingface_hub import constants
from tiny_models import letter_vocabulary, tiny_llama, tiny_mtp

from localspec import catalog, cli, discovery, machine, resources
from localspec.errors import EngineDied
from localspec.gguf_header import read_header
from localspec.hub import client
from localspec.models import output
from localspec.models.inspection import inspect_file
from localspec.models.overview import rough_verdict
from localspec.records import Device

MEMORY = output.memory
DEMO = resources.asset("demo")
EAGLE3 = DEMO / "smollm2-135m-eagle3-q4_0.gguf"
DFLASH = DEMO / "smollm2-135m-dflash-q4_0.gguf"
DRAFT = DEMO / "smollm2-135m-draft-q4_0.gguf"
MTP = DEMO / "tinyqwen35-mtp-q4_0.gguf"


@pytest.fixture(autouse=True)
def own_file(tmp_path: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on it but what comes with localspec."""
    for name in ("LLAMA_CACHE", "OLLAMA_MODELS"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(discovery, "_lm_studio_home", lambda home: tmp_path / "studio")
    monkeypatch.setattr(client, "BACKOFF", client.Backoff(attempts=1))
    monkeypatch.setattr(output, "memory", lambda: machine.memory())  # no engine for each test
    path = tmp_path / "config" / "models.toml"
    monkeypatch.setattr(catalog, "user_file", lambda: path)
    return path


class Typed:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as left:
            cli.main(list(words))
        self.out, self.err = self.capsys.readouterr()
        assert left.value.code == code, self.err
        return self.out

    def json(self, *words: str):
        return json.loads(self(*words, "--json"))


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Typed:
    return Typed(capsys)


def facts(out: str) -> dict[str, str]:
    rows = (line.partition("  ") for line in out.splitlines())
    return {name.strip(): text.strip() for name, _, text in rows}


# ---- inspect -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 250,000 tokens and 200,000 merges whose weights are larger than its header."""

    def text(value: str) -> bytes:
        raw = value.encode()
        return struct.pack("<Q", len(raw)) + raw

    def entry(key: str, kind: int, value: bytes) -> bytes:
        return text(key) + struct.pack("<I", kind) + value

    def strings(values: list[str]) -> bytes:
        return struct.pack("<IQ", 8, len(values)) + b"".join(map(text, values))

    vocab, width, blocks = 250_000, 64, 2
    kv = [
        entry("general.architecture", 8, text("llama")),
        entry("general.name", 8, text("Large Vocabulary")),
        entry("general.license", 8, text("mit")),
        *(
            entry(f"llama.{key}", 4, struct.pack("<I", value))
            for key, value in {
                "block_count": blocks,
                "context_length": 4096,
                "embedding_length": width,
                "feed_forward_length": 128,
                "attention.head_count": 4,
                "attention.head_count_kv": 2,
            }.items()
        ),
        entry("tokenizer.ggml.model", 8, text("gpt2")),
        entry("tokenizer.ggml.tokens", 9, strings([f"token-{i:07}" for i in range(vocab)])),
        entry("tokenizer.ggml.token_type", 9, struct.pack(f"<IQ{vocab}i", 5, vocab, *[1] * vocab)),
        entry("tokenizer.ggml.merges", 9, strings([f"to ken{i:07}" for i in range(200_000)])),
        entry("general.file_type", 4, struct.pack("<I", 7)),
    ]
    size = vocab * width // 32 * 34
    tensor = text("token_embd.weight") + struct.pack("<IQQIQ", 2, width, vocab, 8, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(kv)) + b"".join(kv) + tensor
    path = tmp_path_factory.mktemp("large") / "Large-Q8_0.gguf"
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(size))
    return path


def test_a_file_here_tells_its_facts(typed: Typed) -> None:
    found = facts(typed("models", "inspect", "demo"))
    assert found["architecture"] == "llama"
    assert found["parameters"] == "135M"
    assert found["context"] == "8,192 tokens"
    assert found["vocabulary"].startswith("49,152 tokens")
    assert found["quantisation"].startswith("Q4_1 (bytes: Q4_1 ")
    assert (found["MTP head"], found["licence"]) == ("none", "apache-2.0")
    assert "fits" not in found
    assert "Fits in memory" in facts(typed("models", "inspect", "demo", "--fit"))["fits"]


def test_what_fits_is_said_with_the_engines_gpus_or_without_an_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = Device("CUDA0", "A GPU", "gpu", 8 << 30, 7 << 30)
    with monkeypatch.context() as patch:
        patch.setattr(output.Engine, "devices", lambda engine: (gpu,))
        assert MEMORY().devices == (gpu,)

        def refuse(*_: object, **__: object) -> None:
            raise EngineDied("exit code 1", [])

        patch.setattr(output.Engine, "__init__", refuse)
        assert MEMORY().devices == ()
    assert rough_verdict(6 << 30, output.Memory(64 << 30, 60 << 30, (gpu,))) == "GPU"
    assert rough_verdict(9 << 30, output.Memory(64 << 30, 60 << 30, (gpu,))) == "GPU+CPU"
    assert rough_verdict(9 << 30, output.Memory(64 << 30, 60 << 30)) == "CPU"
    assert rough_verdict(90 << 30, output.Memory(64 << 30, 60 << 30, (gpu,))) == "does not fit"


def test_mtp_heads_and_drafters_tell_what_they_are(typed: Typed, models: Path) -> None:
    own = typed("models", "inspect", str(MTP))
    assert facts(own)["MTP head"] == "1 layer: --drafter mtp"
    dropped = read_header(MTP).path.read_bytes().replace(b"nextn.eh_proj", b"mextn.eh_proj")
    stripped = models / "stripped.gguf"
    stripped.write_bytes(dropped)
    found = typed.json("models", "inspect", str(stripped))
    assert (found["mtp_claimed"], found["mtp_layers"], found["mtp_runs"]) == (1, 0, False)
    assert "MTP layer" in found["problem"]
    eagle = facts(typed("models", "inspect", str(EAGLE3)))
    assert eagle["what"] == "an EAGLE-3 drafter"
    assert "reads the target's layers 2, 15, 27" in eagle["drafts for"]
    assert "drafts from 8,192 tokens" in eagle["drafts for"]


def test_a_truncated_file_is_inspected_and_says_so(typed: Typed, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(DRAFT.read_bytes()[:6_000_000])
    found = typed.json("models", "inspect", str(path))
    assert (found["complete"], found["parameters"]) == (False, 14_649_088)
    assert "is truncated: 6,000,000 of" in found["problem"]
    assert "TRUNCATED" in typed("models", "inspect", str(path))


def test_a_file_on_the_hub_is_inspected_by_its_first_megabytes(
    typed: Typed, hub: HubServer, large: Path
) -> None:
    hub.add("me/Large-GGUF", {"Large-Q8_0.gguf": large})
    there = typed.json("models", "inspect", "hf:me/Large-GGUF:Q8_0")
    here = inspect_file(read_header(large))
    assert there["where"] == "hf:me/Large-GGUF/Large-Q8_0.gguf"
    for name in ("parameters", "vocab", "quant", "complete", "size", "licence", "context", "arch"):
        assert there[name] == getattr(here, name), name
    assert (there["vocab"], there["parameters"], there["problem"]) == (250_000, 16_000_000, "")
    header, sent = read_header(large).data, hub.bytes_sent("Large-Q8_0.gguf")
    assert header < sent < 2 * header < large.stat().st_size
    assert all(r.range for r in hub.asked("/cdn/"))
    assert len(hub.asked("/cdn/")) < 8


def test_a_hub_file_that_is_here_is_not_asked_for(
    typed: Typed, hub: HubServer, large: Path
) -> None:
    hub.add("me/Large-GGUF", {"Large-Q8_0.gguf": large})
    typed("models", "pull", "hf:me/Large-GGUF:Q8_0", "--quiet")
    hub.forget()
    found = typed.json("models", "inspect", "hf:me/Large-GGUF:q8_0")
    assert found["where"].endswith("Large-Q8_0.gguf")
    assert hub.requests == []


def test_a_server_without_ranges_is_refused(typed: Typed, hub: HubServer, large: Path) -> None:
    hub.add("me/Large-GGUF", {"Large-Q8_0.gguf": large})
    hub.fail("/cdn/", ignore_range=True, times=9)
    typed("models", "inspect", "hf:me/Large-GGUF:Q8_0", code=1)
    assert "sends whole files only" in typed.err


# ---- what a repository offers --------------------------------------------------------------------


@pytest.fixture
def repository(hub: HubServer, models: Path) -> str:
    """Two quantisations, one of them too large for any machine by what its header says."""
    small = tiny_llama(models / "offer-small.gguf")
    hub.add(
        "me/Tiny-GGUF",
        {
            "Tiny-Q4_K_M.gguf": small,
            "Tiny-Q8_0.gguf": small.read_bytes() + bytes(5000),
            "mtp-Tiny-Q8_0.gguf": b"GGUF",
            "mmproj-F16.gguf": b"GGUF",
            "README.md": b"# Tiny",
        },
        downloads=7,
        tags=["gguf", "license:mit"],
    )
    return "me/Tiny-GGUF"


def test_a_repository_is_listed_with_sizes_and_what_fits(
    typed: Typed, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = typed("models", "inspect", f"hf:{repository}")
    rows = [line.split() for line in out.splitlines()]
    assert [row[0] for row in rows[1:5]] == [
        "Q4_K_M", "Q8_0", "mtp-Tiny-Q8_0.gguf", "mmproj-F16.gguf"
    ]  # fmt: skip
    assert "recommended" in rows[1] and "CPU" in rows[1]
    assert out.endswith(f"localspec models pull hf:{repository}:Q4_K_M\n")
    monkeypatch.setattr(output, "memory", lambda: output.Memory(1 << 20, 1 << 20))
    out = typed("models", "inspect", f"https://huggingface.co/{repository}/tree/main")
    assert "does not fit" in out and "recommended" not in out
    assert "None of them fits this machine" in out


def test_what_is_here_and_cannot_be_used_is_not_recommended(typed: Typed, hub: HubServer) -> None:
    bad = DRAFT.read_bytes()[:24] + b"\xff" * 5000
    hub.add("me/bad-GGUF", {"bad-Q8_0.gguf": bad})
    typed("models", "pull", "hf:me/bad-GGUF:Q8_0", code=1)
    out = typed("models", "inspect", "hf:me/bad-GGUF")
    assert out.splitlines()[1].split()[-2:] == ["not", "usable"]
    assert "What is here cannot be used: bad-Q8_0.gguf is damaged" in out
    assert "models rm hf:me/bad-GGUF/bad-Q8_0.gguf" in out and "ecommended" not in out
    [said] = typed.json("models", "inspect", "hf:me/bad-GGUF")
    assert (said["recommended"], "damaged" in said["problem"]) == (False, True)
    hub.add("me/bad-GGUF", {"bad-Q8_0.gguf": bad, "good-Q4_K_M.gguf": DRAFT})
    assert "models pull hf:me/bad-GGUF:Q4_K_M" in typed("models", "inspect", "hf:me/bad-GGUF")


def test_a_pull_that_leaves_the_choice_open_says_what_fits(
    typed: Typed, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = typed("models", "pull", f"hf:{repository}", code=2)
    rows = [line.split() for line in out.splitlines()]
    assert [(row[0], row[3:]) for row in rows] == [
        ("Q4_K_M", ["CPU", "recommended"]),
        ("Q8_0", ["CPU"]),
    ]
    assert f"localspec models pull hf:{repository}:Q4_K_M" in typed.err
    monkeypatch.setattr(output, "memory", lambda: output.Memory(1 << 20, 1 << 20))
    out = typed("models", "pull", f"hf:{repository}", code=2)
    assert out.count("does not fit") == 2 and "recommended" not in out
    assert "None of them fits this machine" in typed.err


def test_the_model_option_lists_what_may_be_meant(typed: Typed, repository: str) -> None:
    typed("run", "--model", f"hf:{repository}", "hello", code=1)
    assert f"hf:{repository} is not on this machine." in typed.err
    assert "  Q4_K_M  " in typed.err and "  recommended\n" in typed.err
    assert f"localspec models pull hf:{repository}:Q4_K_M" in typed.err
    typed("run", "--model", f"hf:{repository}:Q8_0", "hello", code=1)
    assert typed.err.splitlines()[1] == (f"Get it with: localspec models pull hf:{repository}:Q8_0")
    typed("chat", "--model", "demo", "--drafter", "hf:me/none", code=1)
    assert "hf:me/none is not on this machine" in typed.err
    assert "The Hub has no me/none" in typed.err


def test_a_repository_without_gguf_or_of_no_such_name(typed: Typed, hub: HubServer) -> None:
    hub.add("me/Tiny", {"model.safetensors": b"x"})
    typed("models", "inspect", "hf:me/Tiny", code=1)
    assert "me/Tiny holds no GGUF file." in typed.err
    typed("models", "inspect", "hf:me/Tinny", code=1)
    assert "The Hub has no me/Tinny" in typed.err and "me/Tiny" in typed.err
    typed("models", "inspect", "nonsense", code=2)
    assert "There is no model called 'nonsense'" in typed.err


# ---- list ----------------------------------------------------------------------------------------


def test_the_list_shows_what_is_here_and_what_fits(
    typed: Typed, tmp_path: Path, own_file: Path, models: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    tiny_mtp(folder / "Mine-Q8_0.gguf")
    (folder / "drafter.gguf").write_bytes(EAGLE3.read_bytes())
    (folder / "page.gguf").write_text("<html>")
    own_file.parent.mkdir()
    own_file.write_text(f"folders = [{json.dumps(str(folder))}]\n")
    out = typed("models", "list")
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert " CPU " in lines["demo"] and " yes " in lines["demo"]
    assert "17.1 GB" in lines["qwen3.6-27b"] and " no " in lines["qwen3.6-27b"]
    assert "-dflash" in lines["qwen3.6-27b"]
    assert "step35 Q8_0, MTP head" in lines["Mine-Q8_0"]
    assert "eagle3 drafter" in lines["drafter"]
    assert "page.gguf is a web page" in lines["not"]
    found = typed.json("models", "list")
    assert {f["name"]: f["kind"] for f in found["files"]} == {
        "Mine-Q8_0": "model",
        "drafter": "drafter",
        "page": "broken",
    }
    demo = found["catalogue"][0]
    assert (demo["name"], demo["files"][0]["fits"]) == ("demo", "CPU")
    assert demo["files"][0]["size_bytes"] == 98_362_432


# ---- drafters and search -------------------------------------------------------------------------


def test_drafters_on_the_hub_are_checked_by_their_headers(typed: Typed, hub: HubServer) -> None:
    hub.add("a/SmolLM2-135M-Instruct-EAGLE3-GGUF", {"eagle3-x-Q4_0.gguf": EAGLE3}, downloads=5)
    hub.add("b/SmolLM2-135M-Instruct-DFlash-GGUF", {"dflash-x.gguf": DFLASH}, downloads=9)
    hub.add("c/Wrong-SmolLM2-135M-Instruct-EAGLE3", {"eagle3-y.gguf": MTP}, downloads=8)
    hub.add("d/SmolLM2-135M-Instruct-eagle3", {"model.safetensors": b"x"})
    hub.add("e/SmolLM2-135M-Instruct-draft", {"smol-Q8_0.gguf": DRAFT})
    found = typed.json("models", "drafters", "demo")
    by_words = {c["words"]: c for c in found}
    assert [c["words"] for c in found[:4]] == ["draft-model", "dspark", "dflash", "eagle3"]
    eagle = by_words["hf:a/SmolLM2-135M-Instruct-EAGLE3-GGUF/eagle3-x-Q4_0.gguf"]
    assert (eagle["fits"], eagle["method"], eagle["here"]) == (True, "eagle3", False)
    assert eagle["size"] == EAGLE3.stat().st_size
    assert by_words["hf:b/SmolLM2-135M-Instruct-DFlash-GGUF/dflash-x.gguf"]["fits"] is True
    wrong = by_words["hf:c/Wrong-SmolLM2-135M-Instruct-EAGLE3/eagle3-y.gguf"]
    assert wrong["fits"] is False and "tinyqwen35" not in wrong["why"] and wrong["why"]
    safetensors = by_words["hf:d/SmolLM2-135M-Instruct-eagle3"]
    assert safetensors["fits"] is False and "convert_hf_to_gguf.py" in safetensors["why"]
    assert not any("e/SmolLM2" in words for words in by_words)  # a whole model, not a drafter
    out = typed("models", "drafters", "demo")
    assert "Best: trained for this target" in out
    assert "--model demo --drafter draft-model" in out
    assert "Found, but of no use with this target:" in out


def test_the_models_own_head_comes_first_without_the_hub(
    typed: Typed, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = typed.json("models", "drafters", "demo-mtp", "--offline")
    assert (found[0]["words"], found[0]["note"]) == ("mtp", "the model has its own MTP head")
    assert hub.requests == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    out = typed("models", "drafters", "demo-mtp")
    assert "Best: the model has its own MTP head. Use it with: --model demo-mtp" in out
    assert "The Hub was not searched" in typed.err
    assert "HF_HUB_OFFLINE" in typed.err


def test_drafters_of_a_model_that_is_still_on_the_hub(
    typed: Typed, hub: HubServer, models: Path
) -> None:
    trunk = tiny_mtp(models / "far-trunk.gguf", heads=2, own_heads=False)
    heads = tiny_mtp(models / "far-heads.gguf", heads=2, trunk=False)
    files = {"Far-Q8_0.gguf": trunk, "mtp-Far-Q8_0.gguf": heads}
    hub.add("me/Far-GGUF", files, downloads=3, tags=["base_model:quantized:far/Model"])
    hub.add("us/odd-name", {"mtp-x.gguf": heads}, tags=["base_model:far/Model", "gguf"])
    found, linked = typed.json("models", "drafters", "hf:me/Far-GGUF")
    assert (linked["words"], linked["fits"]) == ("hf:us/odd-name/mtp-x.gguf", True)
    assert found["words"] == "hf:me/Far-GGUF/mtp-Far-Q8_0.gguf"
    assert (found["fits"], found["method"]) == (True, "mtp")
    typed("models", "drafters", str(heads), code=2)
    assert "is a drafter itself" in typed.err


def test_a_small_model_here_of_the_same_vocabulary_may_draft(
    typed: Typed, tmp_path: Path, own_file: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    big = tiny_llama(folder / "big.gguf", n_layer=6)
    tiny_llama(folder / "small.gguf", n_layer=1)
    tiny_llama(folder / "stranger.gguf", n_layer=1, tokens=letter_vocabulary(first="p"))
    own_file.parent.mkdir()
    own_file.write_text(f"folders = [{json.dumps(str(folder))}]\n")
    found = typed.json("models", "drafters", str(big), "--offline")
    assert [(c["words"], c["method"], c["fits"]) for c in found] == [("small", "draft-model", True)]


def test_searching_the_hub(typed: Typed, hub: HubServer, repository: str) -> None:
    hub.add("you/Tiny-Other-GGUF", {"x.gguf": b"G"}, tags=["gguf"], downloads=9, gated="manual")
    hub.add("you/Tiny", {"x.safetensors": b"G"})
    out = typed("models", "search", "tiny", "gguf")
    rows = [line.split() for line in out.splitlines()[1:3]]
    assert rows[0][:3] == ["hf:you/Tiny-Other-GGUF", "(gated)", "9"]
    assert rows[1][0] == f"hf:{repository}" and rows[1][-1] == "mit"
    assert "localspec models inspect hf:you/Tiny-Other-GGUF" in out
    typed("models", "search", "nothing", "like", "this", code=1)
    assert "Search for fewer words" in typed.err
    hub.fail("/api/models", status=429, headers={"Retry-After": "300"})
    typed("models", "search", "tiny", code=1)
    assert "limits the number of requests" in typed.err


# ---- add and check -------------------------------------------------------------------------------


def test_a_model_and_its_drafter_are_added_and_used(
    typed: Typed, own_file: Path, tmp_path: Path, hub: HubServer
) -> None:
    trunk = tiny_mtp(tmp_path / 'Mein "Modell" Q8_0.gguf', heads=2, own_heads=False)
    heads = tiny_mtp(tmp_path / "heads.gguf", heads=2, trunk=False)
    hub.add("me/Heads-GGUF", {"mtp-far.gguf": heads})
    typed("models", "add", str(trunk), "-d", str(heads), "-d", "hf:me/Heads-GGUF/mtp-far.gguf")
    assert f"Added mein-modell-q8_0 to {own_file}" in typed.out
    target = catalog.resolve_target("mein-modell-q8_0")
    assert target.path == trunk
    assert [(d.name, d.method, d.path, d.recommended) for d in target.drafters] == [
        ("mtp", "mtp", heads, True),
        ("mtp-far", "mtp", None, False),
        ("ngram", "ngram", None, False),
    ]
    before = own_file.read_text()
    typed("models", "add", str(trunk), code=2)
    assert "has a model mein-modell-q8_0 already" in typed.err
    typed("models", "add", str(trunk), "--name", "two words", code=2)
    assert "a name has only letters" in typed.err and "two words" in typed.err
    typed("models", "add", "demo", "-d", str(heads), code=1)
    assert "cannot draft for" in typed.err
    assert own_file.read_text() == before
    assert list(own_file.parent.iterdir()) == [own_file]


def test_a_model_of_the_hub_is_added_without_downloading_it(
    typed: Typed, own_file: Path, hub: HubServer, large: Path
) -> None:
    hub.add("me/Large-GGUF", {"Large-Q8_0.gguf": large})
    typed("models", "add", "hf:me/Large-GGUF", "--name", "large.1")
    entry = catalog.Catalogue.load().entry("large.1")
    assert (entry.source.repo, entry.source.size) == ("me/Large-GGUF", large.stat().st_size)
    assert (entry.licence, entry.title) == ("mit", "Large Vocabulary")
    assert hub.bytes_sent("Large-Q8_0.gguf") < large.stat().st_size
    typed("run", "--model", "large.1", "hello", code=1)
    assert "localspec models pull large.1" in typed.err


def test_a_model_of_the_cache_is_added_by_its_repository(
    typed: Typed, own_file: Path, tmp_path: Path, hub: HubServer
) -> None:
    hub.add("me/Own-GGUF", {"own-Q8_0.gguf": tiny_mtp(tmp_path / "own.gguf", heads=1)})
    typed("models", "pull", "hf:me/Own-GGUF")
    typed("models", "add", "hf:me/Own-GGUF", "--name", "demo")
    assert "takes the place of the demo that comes with localspec" in typed.out
    entry = catalog.Catalogue.load().entry("demo")
    assert (entry.source.repo, entry.source.file) == ("me/Own-GGUF", "own-Q8_0.gguf")
    assert entry.source.path is None
    assert entry.drafters["mtp"].source is None and entry.drafters["mtp"].recommended
    typed("models", "verify", "demo")
    typed("models", "rm", "demo", "-y")
    typed("models", "pull", "demo")


def test_every_entry_is_looked_up_on_the_hub(
    typed: Typed, own_file: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "catalogue_file", lambda: own_file)
    own_file.parent.mkdir()
    own_file.write_text("""
[models.good]
title = "Good"
[models.good.source]
repo = "me/Good"
files = { Q4_0 = "g-Q4_0.gguf", Q8_0 = "g-Q8_0.gguf" }
sizes = { Q4_0 = 3 }
[models.good.drafters.mtp]
method = "mtp"
source = { repo = "me/Gone", file = "mtp-g.gguf" }
""")
    hub.add("me/Good", {"g-Q4_0.gguf": b"GGUF", "g-other.gguf": b"GGUF"})
    out = typed("models", "check", code=1)
    lines = [line.split(maxsplit=1) for line in out.splitlines() if line]
    assert lines[0] == ["good:Q4_0", "SIZE   4 bytes; the catalogue says 3"]
    assert lines[1] == ["good:Q8_0", "WRONG  me/Good has no file g-Q8_0.gguf."]
    assert lines[2][0] == "good/mtp" and "The Hub has no me/Gone" in lines[2][1]
    assert "0 of 3 files are as stated, 1 of another size, 2 not to be had." in out
    hub.add("me/Gone", {"mtp-g.gguf": b"GGUF"})
    hub.add("me/Good", {"g-Q4_0.gguf": b"GGUF", "g-Q8_0.gguf": b"GGUF"})
    out = typed("models", "check", code=1)
    assert "2 of 3 files are as stated, 1 of another size." in out
    hub.add("me/Good", {"g-Q4_0.gguf": b"GGU", "g-Q8_0.gguf": b"GGUF"})
    assert "3 of 3 files are as stated." in typed("models", "check")
    hub.fail("/api/models", status=503, times=9)
    typed("models", "check", code=1)
    assert "The Hub has a fault of its own" in typed.err


# ---- fit -----------------------------------------------------------------------------------------


def test_what_a_model_takes_here_is_simulated_with_its_drafter(typed: Typed) -> None:
    out = typed("models", "fit", "demo", "--drafter", "eagle3", "--ctx", "2048")
    assert out.startswith("Fits in memory:")
    assert "2,048 tokens" in out
    heads, cells = out.split("\n\n")[1].splitlines()
    assert heads.split() == "device weights KV cache compute drafter needed free".split()
    assert cells.startswith("CPU")
    found = typed.json("models", "fit", "demo", "--ctx", "2048")
    assert (found["verdict"], found["how"], found["n_ctx_max"]) == ("CPU", "simulated", 8192)
    assert found["need"]["CPU"]["kv"] == 2048 * 30 * 2 * 192 * 2


def test_a_context_beyond_sense_is_refused_before_it_is_simulated(typed: Typed) -> None:
    typed("models", "fit", "demo", "--ctx", "999999999", code=2)
    assert "999,999,999 tokens" in typed.err and "up to 131,072" in typed.err


def test_what_does_not_fit_ends_with_code_1_and_is_not_run(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = machine.Memory(8 << 30, 600 << 20)
    monkeypatch.setattr("localspec.engine.client.memory", lambda _devices: small)
    monkeypatch.setattr(machine, "memory", lambda _devices=(): small)
    assert "Does not fit" in typed("models", "fit", "demo", code=1)
    typed("run", "-m", "demo", "--drafter", "none", "--max-tokens", "4", "hi", code=1)
    assert "does not fit: it needs" in typed.err
    assert "--no-fit-check" in typed.err
    words = ("--drafter", "none", "--max-tokens", "4", "--no-fit-check", "hi")
    assert typed("run", "-m", "demo", *words)


def test_a_file_on_the_hub_is_judged_by_its_header(
    typed: Typed, hub: HubServer, large: Path
) -> None:
    hub.add("me/Large-GGUF", {"Large-Q8_0.gguf": large})
    found = typed.json("models", "fit", "hf:me/Large-GGUF:Q8_0")
    assert (found["verdict"], found["how"]) == ("CPU", "by formula")
    # the embeddings are the output too; of Q8_0, x86 keeps no second copy
    assert found["need"]["CPU"]["weights"] >= 17_000_000
    typed("models", "fit", "hf:me/Large-GGUF:Q8_0", "--drafter", "eagle3", code=2)
    assert "get it first: localspec models pull" in typed.err


@pytest.mark.parametrize("name", ["ollama:llama:7b", "[/INST] [red]m", r"\[x"])
def test_a_name_is_printed_as_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = output.table_of("name")
    table.add_row(name)
    output.console().print(table)
    output.say(name)
    told = capsys.readouterr()
    assert name in told.out
    assert name in told.err
