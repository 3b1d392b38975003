"""Profiles: kept, picked, used by the commands, and what is said of those that do not hold."""

import json
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path

import pytest

from localspec import machine
from localspec.bench.command import select
from localspec.catalog import resolve_drafters, resolve_target
from localspec.cli import main
from localspec.errors import UsageError
from localspec.records import DrafterSettings, EngineOptions
from localspec.tune import profiles
from localspec.tune.profiles import Measured, Profile, ProfileError

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _own_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def files(tiny_target, tiny_draft, tmp_path):
    """A target and a drafter of the test's own, to be spoilt."""
    return tuple(
        Path(shutil.copy2(file, tmp_path / name))
        for file, name in ((tiny_target, "target.gguf"), (tiny_draft, "draft.gguf"))
    )


def profile_of(target, drafter=None, **more):
    facts = {
        "name": "mine",
        "created": NOW,
        "model": str(target),
        "target": profiles.File.of(Path(target)),
        "workloads": ("chat8", "code9"),
        "drafter": None
        if drafter is None
        else profiles.drafting(drafter, drafter.name.partition(" tree=")[0]),
        "measured": Measured(speedup=1.21, interval=(1.1, 1.33), prompts=9, pairs=27),
        "machine": machine.describe(),
        "build": {"llama_cpp_python": metadata.version("llama-cpp-python")},
        "localspec": "1",
    }
    return Profile(**(facts | more))


def drafted(target, drafter, **how):
    (spec,) = resolve_drafters(resolve_target(str(target)), (str(drafter),))
    return spec.settings(**how)


@pytest.fixture
def kept(files):
    """A profile of a chain of 3 with p_min 0.5."""
    profile = profile_of(files[0], drafted(*files, n_max=3, p_min=0.5))
    profiles.keep(profile)
    return profile


def code_of(*words):
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


@pytest.fixture
def asked(monkeypatch):
    """The options that the commands hand on; nothing is run."""
    found = []
    monkeypatch.setattr("localspec.chat.command.run", lambda options, _: found.append(options) or 0)
    monkeypatch.setattr("localspec.chat.command.chat", lambda options: found.append(options) or 0)
    monkeypatch.setattr("localspec.bench.command.bench", lambda options: found.append(options) or 0)
    return found


def test_what_is_kept_is_read_again_and_says_in_a_sentence_what_it_is(kept):
    assert profiles.read("mine") == kept
    assert kept.sentence() == (
        "draft n=3 p_min=0.5 is 1.21x [1.10, 1.33] on chat8, code9, tuned 2026-03-04"
    )
    one = Measured(speedup=1.21, interval=(1.1, 1.33), prompts=1, pairs=9, this_prompt_only=True)
    assert "1.33] on one prompt, tuned" in kept.model_copy(update={"measured": one}).sentence()
    loops = one.model_copy(update={"repeating": 0.9})
    assert "loops, tuned" in kept.model_copy(update={"measured": loops}).sentence()
    text = profiles.file_of("mine").read_text()
    assert '"speedup": 1.21' in text  # for a person with an editor


@pytest.mark.parametrize("words", [("run", "hello"), ("chat",)])
@pytest.mark.parametrize("name", ["mine", "auto"])
def test_chat_and_run_draft_as_the_profile_says(kept, files, asked, capsys, words, name):
    command, *prompt = words
    assert code_of(command, "--model", str(files[0]), "--profile", name, *prompt) == 0
    (options,) = asked
    assert options.drafter == str(files[1].resolve())
    assert (options.n_max, options.p_min, options.tree) == (3, 0.5, 0)
    assert "note: profile mine: draft n=3" in " ".join(capsys.readouterr().err.split())


def test_options_that_are_given_win(kept, files, asked, capsys):
    own = ("run", "--model", str(files[0]), "--profile", "mine")
    assert code_of(*own, "--n-max", "1", "hello") == 0
    assert code_of(*own, "--p-min", "0", "--tree", "8", "hello") == 0
    assert code_of(*own, "--drafter", "ngram", "hello") == 0
    lengths, tree, other = asked
    assert (lengths.n_max, lengths.p_min) == (1, 0.5)
    assert (tree.n_max, tree.p_min, tree.tree) == (3, 0.0, 8)
    assert (other.drafter, other.n_max, other.p_min) == ("ngram", None, None)
    assert "not the profile's drafter" in capsys.readouterr().err
    assert code_of(*own, "--quiet", "hello") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", [("run", "hello"), ("bench", "--prompt", "a")])
def test_a_profile_is_looked_up_beside_a_drafter_too(files, asked, capsys, command):
    name, *more = command
    own = (name, "--model", str(files[0]), "--drafter", "ngram", *more, "--profile")
    assert code_of(*own, "mime") == 2
    assert "There is no profile called 'mime'" in capsys.readouterr().err
    assert code_of(*own, "auto") == 0
    assert capsys.readouterr().err == "", "there is no profile to be told of"
    profiles.keep(profile_of(files[0], drafted(*files, n_max=3)))
    assert code_of(*own, "auto") == code_of(*own, "mine") == 0
    assert capsys.readouterr().err.count("not the profile's drafter") == 2


def test_a_tree_of_the_profile_can_be_switched_off(files, asked):
    profiles.keep(profile_of(files[0], drafted(*files, tree="auto")))
    own = ("run", "--model", str(files[0]), "--profile", "mine")
    assert code_of(*own, "hello") == code_of(*own, "--tree", "0", "hello") == 0
    assert [(options.tree, options.p_min) for options in asked] == [("auto", None), (0, None)]


@pytest.mark.parametrize("how", [{"n_max": 3, "p_min": 0.5}, {"n_max": "auto"}, {"tree": 8}])
def test_bench_measures_the_baseline_and_that_very_setup(files, asked, how):
    setup = drafted(*files, **how)
    profiles.keep(profile_of(files[0], setup))
    assert code_of("bench", "--model", str(files[0]), "--profile", "mine", "--prompt", "a") == 0
    baseline, candidate = select(asked[0]).candidates
    assert baseline.is_baseline
    name = candidate.drafter.name
    assert replace(candidate.drafter, name="") == replace(setup, name="")
    assert name.startswith("draft")


def test_what_a_tree_makes_no_use_of_is_said_if_it_was_asked_for(files, asked, capsys):
    profiles.keep(profile_of(files[0], drafted(*files, tree=8)))
    own = ("--model", str(files[0]), "--profile", "mine")
    options, given = ("--p-min", "--draft-sampling"), ("--p-min", "0", "--draft-sampling")

    def said():
        words = " ".join(capsys.readouterr().err.split())
        return tuple(o for o in options if f"{o} has no effect on draft trees" in words)

    for command in (("run", "hello"), ("chat",)):
        for tree in ((), ("--tree", "16")):
            assert code_of(*command, *own, *tree) == 0
            assert said() == ()
            assert code_of(*command, *own, *tree, *given) == 0
            assert said() == options
        assert code_of(*command, *own, *given, "--tree", "0") == 0
        assert said() == ()
    assert code_of("bench", *own, "--prompt", "a", *given) == 0
    told = [
        line.partition(" has no effect on draft trees")[0] for line in select(asked[-1]).remarks
    ]
    assert tuple(told) == options


def test_the_real_engine_drafts_by_it_too(kept, files, capsys):
    own = ("-m", str(files[0]), "--profile", "mine", "--p-min", "0", "--max-tokens", "9")
    assert code_of("run", *own, "ab") == 0
    out, err = capsys.readouterr()
    assert out
    assert "coverage 0 %" not in err


def test_a_catalogue_drafter_keeps_its_name_and_export_has_its_file(capsys):
    target = resolve_target("demo")
    (spec,) = resolve_drafters(target, ("eagle3",))
    profiles.keep(profile_of(target.path, spec.settings(n_max=3)))
    assert profiles.setup("auto", target, "demo").drafter == "eagle3"
    assert code_of("export", "--model", "demo", "--profile", "auto") == 0
    out, err = capsys.readouterr()
    assert "--spec-draft-n-max 3" in out
    assert "smollm2-135m-eagle3" in out
    assert "profile mine" in err
    assert code_of("export", "--bench", "last", "--profile", "auto") == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (DrafterSettings("ngram", "ngram", n_max=8), "ngram"),
        (DrafterSettings("ngram+draft-model", "ngram+draft", n_max=8), "ngram+{draft}"),
    ],
)
def test_every_kind_of_drafter_has_words_that_find_it_again(files, settings, words):
    if "draft-model" in settings.method:
        settings = replace(settings, path=str(files[1]))
    profiles.keep(profile_of(files[0], settings))
    target = resolve_target(str(files[0]))
    found = profiles.setup("mine", target, "t").drafter
    assert found == words.format(draft=files[1].resolve())
    (spec,) = resolve_drafters(target, (found,))
    assert spec.method == settings.method


def test_a_profile_that_says_baseline_switches_speculation_off_and_says_so(files, asked, capsys):
    profiles.keep(profile_of(files[0]))
    own = ("--model", str(files[0]), "--profile", "mine")
    assert code_of("run", *own, "hello") == code_of("bench", *own, "--prompt", "a") == 0
    chat, bench = asked
    assert chat.drafter == "none"
    assert [c.is_baseline for c in select(bench).candidates] == [True]
    err = " ".join(capsys.readouterr().err.split())
    assert "the baseline is fastest on chat8, code9 (the best drafter: 1.21x" in err
    assert "without speculation" in err


def test_auto_takes_the_latest_of_this_model_and_no_other(kept, files, tiny_bytes):
    profiles.keep(profile_of(files[0], name="later", created=NOW + timedelta(1)))
    profiles.keep(profile_of(tiny_bytes, name="other", created=NOW + timedelta(2)))
    target = resolve_target(str(files[0]))
    assert profiles.pick("auto", target, "t")[0].name == "later"
    with pytest.raises(UsageError, match="The profile other is of .*bytes.gguf.*, not of target"):
        profiles.pick("other", target, "t")
    profiles.remove("later")
    assert profiles.pick("auto", target, "t")[0].name == "mine"


def test_without_a_profile_the_command_that_makes_one_is_named(files, capsys):
    assert code_of("run", "--model", str(files[0]), "--profile", "auto", "hello") == 2
    assert f"localspec tune --model {files[0]}" in capsys.readouterr().err.replace("\n", " ")
    profiles.keep(profile_of(files[0]))
    assert code_of("run", "--model", str(files[0]), "--profile", "mime", "hello") == 2
    assert "Did you mean mine?" in capsys.readouterr().err


# ---- what does not hold any more ----------------------------------------------------------------


def setup(files):
    return profiles.setup("mine", resolve_target(str(files[0])), "my model", EngineOptions())


def other_weights(path):
    """Another file of the same size."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, (before.st_atime, before.st_mtime + 5))


def test_changed_and_lost_files_are_said_with_the_next_step(kept, files):
    again = "localspec tune --model 'my model'"
    other_weights(files[1])
    with pytest.raises(ProfileError, match=r"its drafter .*draft.gguf was changed since") as error:
        setup(files)
    assert again in error.value.hint
    files[1].unlink()
    with pytest.raises(ProfileError, match=r"its drafter .*draft.gguf is gone") as error:
        setup(files)
    assert again in error.value.hint
    other_weights(files[0])
    with pytest.raises(ProfileError, match=r"target.gguf was changed since") as error:
        setup(files)
    assert again in error.value.hint
    files[0].write_bytes(files[0].read_bytes() + b"more")
    with pytest.raises(ProfileError, match=r"target.gguf was changed since"):
        setup(files)


def test_a_file_that_was_only_touched_or_moved_is_the_same(kept, files, tmp_path):
    os.utime(files[0], (1, 1))
    os.utime(files[1], (1, 1))
    assert not any("need not hold" in r for r in setup(files).remarks)
    moved = files[0].rename(tmp_path / "moved.gguf")
    assert setup((moved, files[1])).n_max == 3


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"machine": {"cpu": "Z80"}}, "it was tuned on Z80, and this is"),
        ({"build": {"llama_cpp_python": "0.1"}}, "it was tuned with llama-cpp-python 0.1, and"),
        ({"settings": {"kv_type": "q8_0"}}, "it was tuned with --kv-type q8_0, not with f16"),
    ],
)
def test_another_machine_or_build_is_a_doubt_and_no_hindrance(files, facts, said):
    profiles.keep(profile_of(files[0], drafted(*files, n_max=3), **facts))
    found = setup(files)
    assert found.n_max == 3
    (doubt,) = [r for r in found.remarks if "need not hold" in r]
    assert said in doubt
    assert "localspec tune --model 'my model'" in doubt


@pytest.mark.parametrize(
    "spoil", [lambda t: t[:40], lambda t: t.replace("1.21", '"fast"'), lambda _: ""]
)
def test_a_damaged_profile_is_one_sentence_and_nothing_is_lost(kept, files, spoil, capsys):
    path = profiles.file_of("mine")
    path.write_text(spoil(path.read_text()))
    spoilt = path.read_text()
    assert code_of("run", "--model", str(files[0]), "--profile", "mine", "hello") == 1
    err = capsys.readouterr().err
    assert "is damaged:" in err
    assert "localspec tune" in err
    profiles.keep(profile_of(files[0], name="good"))
    assert code_of("profiles") == 1
    out, err = capsys.readouterr()
    assert "good" in out
    assert "is damaged:" in err
    assert profiles.setup("auto", resolve_target(str(files[0])), "t").drafter == "none"
    profiles.keep(kept)
    assert profiles.read("mine") == kept
    assert path.with_name("mine.json.1").read_text() == spoilt


def test_a_profile_of_another_model_is_not_written_over(kept, files, tiny_bytes):
    profiles.keep(profile_of(tiny_bytes))
    aside = json.loads(profiles.file_of("mine").with_name("mine.json.1").read_text())
    assert aside["target"]["path"] == str(files[0].resolve())
    profiles.keep(profile_of(tiny_bytes))
    assert profiles.names() == ["mine"]


def test_two_files_of_one_name_have_profiles_of_their_own(kept, files, tiny_bytes):
    assert profiles.own_name("mine", files[0]) == "mine"
    assert profiles.own_name("mine", tiny_bytes) == "mine-2"
    profiles.keep(profile_of(tiny_bytes, name="mine-2"))
    assert profiles.own_name("mine", tiny_bytes) == "mine-2"
    assert profiles.own_name("mine", files[1]) == "mine-3"


def test_profiles_are_listed_shown_and_removed(kept, capsys):
    assert code_of("profiles") == code_of("profiles", "show", "mine") == 0
    assert capsys.readouterr().out.count("draft") > 2
    assert code_of("profiles", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "mine"
    assert code_of("profiles", "rm", "mine") == 0
    assert code_of("profiles", "rm", "mine") == 2
    capsys.readouterr()
    assert code_of("profiles") == 0
    assert "localspec tune" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../mine", "a b", "", "a/b"])
def test_a_name_is_no_path(name):
    with pytest.raises(UsageError, match="cannot be the name"):
        profiles.file_of(name)


def test_the_usual_name_is_of_model_and_workload():
    assert profiles.named("demo", ("chat8", "code9")) == "demo-chat8+code9"
    assert profiles.named("a b/c", ("my prompts@4k",)) == "a-b-c-my-prompts-4k"
