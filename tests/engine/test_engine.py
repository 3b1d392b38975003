"""Requests through a real child process."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from engine.conftest import NGRAM, PLAIN, StartEngine, context
from tiny_models import BOS, EOS, tiny_llama

from localspec.engine import client
from localspec.engine import messages as m
from localspec.engine.client import Engine
from localspec.errors import (
    ContextTooSmall,
    DrafterError,
    EngineFailed,
    LocalspecError,
    ModelFileError,
    UsageError,
)
from localspec.records import ContextSettings, DrafterSettings, LoadSettings, SamplerSettings

PROMPT = (BOS, 5, 6, 7, 8, 5, 6)
HOT = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=5)


def draft_model(path: Path, n_max: int = 4, **options: float) -> DrafterSettings:
    return DrafterSettings("draft-model", "draft", str(path), n_max=n_max, **options)


# ---- loading and opening ----------------------------------------------------------------------


def test_a_started_engine_is_ready(engine: Engine) -> None:
    assert engine.alive
    assert engine.pid != os.getpid()
    assert engine.build.llama_cpp_python == "0.3.36"
    assert engine.model.n_vocab == 12


def test_open_answers_with_the_settings_in_effect(engine: Engine, tiny_draft: Path) -> None:
    opened = engine.open("o", draft_model(tiny_draft), context(300, n_batch=2))
    settings = opened.settings
    assert (settings["n_ctx"], settings["draft_n_ctx"]) == (512, 512)
    assert settings["n_outputs_max"] == 5
    assert settings["draft_n_outputs_max"] == 1
    assert settings["n_batch"] == 5, "a verification is one batch"
    for side in ("", "draft_"):
        assert settings[f"{side}threads"] == settings[f"{side}threads_batch"] == 1
    assert any("longer than the 256" in note for note in opened.notes)
    assert any("holds 512 tokens: llama.cpp rounds the 300" in note for note in opened.notes)
    engine.close_session("o")


def test_cells_that_branches_need_are_no_context(engine: Engine, tiny_draft: Path) -> None:
    """A tree of 8 nodes takes 9 of the cells, which are no room for text."""
    tree = replace(draft_model(tiny_draft), tree=8)
    opened = engine.open("t", tree, context(512))
    n_ctx = opened.settings["n_ctx"]
    assert 512 <= n_ctx < 768
    engine.generate("t", (BOS, *[5] * (n_ctx - 2)), max_tokens=1)
    with pytest.raises(ContextTooSmall, match=f"the context holds {n_ctx}"):
        engine.generate("t", (BOS, *[5] * (n_ctx - 1)), max_tokens=1)
    engine.close_session("t")


def test_a_quantised_drafter_cache_is_warned_of_before(engine: Engine, models: Path) -> None:
    drafter = tiny_llama(models / "one-head-draft.gguf", n_head=1)  # rows of one q8_0 block
    for kv_type, warned in (("q8_0", True), ("f16", False), ("f32", False)):
        settings = replace(context(), draft_kv_type=kv_type)
        notes = engine.open("q", draft_model(drafter), settings).notes
        assert any(f"{kv_type} drafter cache" in note for note in notes) == warned
    notes = engine.open("q", PLAIN, replace(context(), draft_kv_type="q8_0")).notes
    assert notes == ()
    engine.close_session("q")


def test_a_baseline_does_not_pay_for_speculation(engine: Engine) -> None:
    settings = engine.open("b", PLAIN, context()).settings
    assert (settings["n_outputs_max"], settings["n_seq_max"], settings["n_rs_seq"]) == (1, 1, 0)
    engine.close_session("b")


def test_a_bad_file_is_an_error_and_another_can_be_loaded(
    start_engine: StartEngine, tiny_target: Path, tmp_path: Path
) -> None:
    engine = start_engine()
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF but not really")
    with pytest.raises(ModelFileError, match="bad.gguf"):
        engine.load(bad)
    with pytest.raises(EngineFailed, match="No model is loaded"):
        engine.open("s", PLAIN, context())
    engine.load(tiny_target)
    engine.open("s", PLAIN, context())
    engine.load(tiny_target)  # sessions belong to the model before
    with pytest.raises(EngineFailed, match="No session 's' is open"):
        engine.generate("s", PROMPT)


@pytest.mark.parametrize("folder", ["my models", "модели 模型"])
def test_paths_with_spaces_and_any_letters(
    start_engine: StartEngine, tmp_path: Path, folder: str
) -> None:
    path = tmp_path / folder
    path.mkdir()
    engine = start_engine(log_file=path / "журнал 1.log")
    model = tiny_llama(path / "модель 1.gguf")
    assert engine.load(model).path == str(model)
    engine.open("s", draft_model(model), context())
    assert engine.generate("s", PROMPT, max_tokens=5).tokens
    assert (path / "журнал 1.log").stat().st_size > 0


def test_two_sessions_on_one_model_keep_apart(engine: Engine) -> None:
    engine.open("one", PLAIN, context())
    engine.open("two", NGRAM, context())
    first = engine.generate("one", PROMPT, max_tokens=20)
    other = engine.generate("two", (BOS, 9, 9, 4), max_tokens=20)
    again = engine.generate("one", (*PROMPT, *first.tokens), max_tokens=5, reuse=True)
    assert again.cached_tokens == len(PROMPT) + len(first.tokens) - 1
    assert engine.generate("two", PROMPT, max_tokens=20).tokens == first.tokens
    assert engine.generate("one", (BOS, 9, 9, 4), max_tokens=20).tokens == other.tokens
    engine.close_session("one")
    assert engine.generate("two", PROMPT, max_tokens=20).tokens == first.tokens
    engine.close_session("two")


def test_closing_a_session_that_is_not_open_is_no_error(engine: Engine) -> None:
    engine.close_session("never was")


@pytest.mark.parametrize("session", ["", "nowhere", "имя"])
def test_an_unknown_session_is_an_error(engine: Engine, session: str) -> None:
    with pytest.raises(EngineFailed, match=f"No session '{session}' is open"):
        engine.generate(session, PROMPT)
    with pytest.raises(EngineFailed, match="No session"):
        engine.probe(session, PROMPT, (1, 2))
    with pytest.raises(EngineFailed, match="No session 'nowhere'"):
        engine.open("s", PLAIN, context(), copy_from="nowhere")


def test_a_failed_open_names_the_reason_and_leaves_the_session_of_that_name(
    engine: Engine, tiny_stranger: Path, tiny_mamba: Path
) -> None:
    engine.open("s", PLAIN, context())
    expected = engine.generate("s", PROMPT, max_tokens=5).tokens
    with pytest.raises(DrafterError, match="token 5 is 'q' against 'b'"):
        engine.open("s", draft_model(tiny_stranger), context())
    with pytest.raises(DrafterError, match="recurrent"):
        engine.open("s", draft_model(tiny_mamba), context())
    with pytest.raises(ModelFileError, match="nowhere.gguf"):
        engine.open("s", draft_model(Path("/nowhere.gguf")), context())
    with pytest.raises(UsageError, match="cache type 'q9'"):
        engine.open("s", NGRAM, ContextSettings(256, 1, kv_type="q9"))
    assert engine.generate("s", PROMPT, max_tokens=5).tokens == expected
    engine.close_session("s")


def test_a_draft_longer_than_the_context_is_a_usage_error(engine: Engine) -> None:
    with pytest.raises(UsageError, match="draft of 300 tokens does not fit a context of 256"):
        engine.open("s", DrafterSettings("ngram", "n", n_max=300), context(256))
    with pytest.raises(UsageError, match="draft of 8 tokens does not fit a context of 4"):
        engine.open("s", DrafterSettings("ngram", "n", n_max=8), context(4))


def test_a_recurrent_target_speculates_and_says_the_same_as_without(
    start_engine: StartEngine, tiny_mamba: Path
) -> None:
    engine = start_engine(tiny_mamba)
    engine.open("plain", PLAIN, context())
    engine.open("s", NGRAM, context())
    plain = engine.generate("plain", PROMPT, max_tokens=60, ignore_eos=True)
    fast = engine.generate("s", PROMPT, max_tokens=60, ignore_eos=True)
    assert fast.tokens == plain.tokens
    assert fast.counts.drafted > 0


# ---- generating -------------------------------------------------------------------------------


@pytest.fixture
def plain(engine: Engine) -> str:
    engine.open("plain", PLAIN, context())
    return "plain"


@pytest.mark.parametrize("sampler", [SamplerSettings(), HOT], ids=["greedy", "sampled"])
@pytest.mark.parametrize("drafter", ["ngram", "draft-model"])
def test_speculation_changes_nothing_but_the_number_of_passes(
    engine: Engine, plain: str, tiny_draft: Path, drafter: str, sampler: SamplerSettings
) -> None:
    settings = NGRAM if drafter == "ngram" else draft_model(tiny_draft)
    engine.open("s", settings, context())
    a = engine.generate(plain, PROMPT, sampler=sampler, max_tokens=120, ignore_eos=True)
    b = engine.generate("s", PROMPT, sampler=sampler, max_tokens=120, ignore_eos=True)
    assert a.tokens == b.tokens
    assert a.text == b.text
    assert b.counts.target_calls < a.counts.target_calls
    assert a.counts.accept_length == 1
    engine.close_session("s")


def test_events_add_up(engine: Engine, plain: str) -> None:
    stream = engine.stream(plain, (BOS, *[5] * 150), max_tokens=60, interval=0, ignore_eos=True)
    events = list(stream)
    prefills = [e for e in events if isinstance(e, m.Prefill)]
    chunks = [e for e in events if isinstance(e, m.Chunk)]
    assert events == [*prefills, *chunks]
    assert [p.done for p in prefills] == [32, 64, 96, 128, 151]
    assert {(p.total, p.cached) for p in prefills} == {(151, 0)}
    result = stream.result
    assert len(result.tokens) == 60
    assert sum(s.tokens for c in chunks for s in c.steps) == 59, "one came from the prefill"
    assert [c.tokens for c in chunks] == sorted(c.tokens for c in chunks)
    shown = "".join(s.text for c in chunks for s in c.spans)
    assert result.text.startswith(shown)
    assert "".join(s.text for s in result.spans) == result.text


def test_a_prompt_may_fill_all_but_one_cell(engine: Engine, plain: str) -> None:
    run = engine.generate(plain, (BOS, *[5] * 254), max_tokens=10, ignore_eos=True)
    assert run.prompt_tokens == 255
    assert run.stop == "context"
    assert len(run.tokens) == 2
    with pytest.raises(ContextTooSmall, match="256 tokens but the context holds 256"):
        engine.generate(plain, (BOS, *[5] * 255))
    assert engine.generate(plain, PROMPT, max_tokens=3).tokens


def test_a_context_that_is_no_multiple_of_256_can_be_filled(engine: Engine) -> None:
    """llama.cpp caps the batch by the n_ctx asked for but pads the context to 512."""
    engine.open("odd", NGRAM, context(300, n_batch=512))
    run = engine.generate("odd", (BOS, *[5] * 450), max_tokens=100, ignore_eos=True)
    assert run.stop == "context"
    assert run.prompt_tokens + len(run.tokens) == 513
    engine.close_session("odd")


@pytest.mark.parametrize("n_batch", [1, 2, 3])
def test_a_batch_smaller_than_a_draft(
    engine: Engine, plain: str, tiny_draft: Path, n_batch: int
) -> None:
    engine.open("s", draft_model(tiny_draft, n_max=6), context(n_batch=n_batch))
    a = engine.generate(plain, PROMPT, max_tokens=50, ignore_eos=True)
    assert engine.generate("s", PROMPT, max_tokens=50, ignore_eos=True).tokens == a.tokens
    engine.close_session("s")


def test_no_tokens_asked_is_no_tokens(engine: Engine, plain: str) -> None:
    run = engine.generate(plain, PROMPT, max_tokens=0)
    assert (run.tokens, run.text, run.stop) == ((), "", "length")
    assert run.decode_tps is None
    assert run.counts.accept_length is None
    after = engine.generate(plain, PROMPT, max_tokens=5, reuse=True)
    assert after.cached_tokens == len(PROMPT) - 1
    assert after.tokens == engine.generate(plain, PROMPT, max_tokens=5).tokens


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 4, 5])
def test_the_budget_is_exact(engine: Engine, tiny_draft: Path, max_tokens: int) -> None:
    engine.open("s", draft_model(tiny_draft), context())
    run = engine.generate("s", PROMPT, max_tokens=max_tokens, ignore_eos=True)
    assert len(run.tokens) == max_tokens
    assert run.stop == "length"
    engine.close_session("s")


def test_an_empty_prompt_is_a_usage_error(engine: Engine, plain: str) -> None:
    with pytest.raises(UsageError, match="prompt is empty"):
        engine.generate(plain, ())


def test_ids_outside_the_vocabulary_are_an_error_that_is_got_over(
    engine: Engine, plain: str
) -> None:
    expected = engine.generate(plain, PROMPT, max_tokens=5).tokens
    with pytest.raises(EngineFailed, match="llama_decode failed"):
        engine.generate(plain, (*PROMPT, 12), reuse=True)
    assert engine.generate(plain, PROMPT, max_tokens=5, reuse=True).tokens == expected


@pytest.mark.parametrize("prompt", [PROMPT, (*PROMPT, 5, 5), PROMPT[:3], (BOS, 9, 9, 9)])
@pytest.mark.parametrize("drafter", ["none", "ngram", "draft-model"])
def test_reuse_gives_what_a_fresh_prefill_gives(
    engine: Engine, tiny_draft: Path, drafter: str, prompt: tuple[int, ...]
) -> None:
    settings = {"none": PLAIN, "ngram": NGRAM, "draft-model": draft_model(tiny_draft)}[drafter]
    engine.open("s", settings, context())
    first = engine.generate("s", PROMPT, max_tokens=30, ignore_eos=True)
    longer = (*PROMPT, *first.tokens, *prompt[1:])
    for p in (prompt, longer, longer[:20]):
        kept = engine.generate("s", p, max_tokens=30, ignore_eos=True, reuse=True)
        assert kept.cached_tokens > 0
        engine.open("fresh", settings, context())
        fresh = engine.generate("fresh", p, max_tokens=30, ignore_eos=True)
        assert (kept.tokens, kept.text) == (fresh.tokens, fresh.text)
        assert fresh.cached_tokens == 0
    engine.close_session("s")
    engine.close_session("fresh")


def test_a_recurrent_memory_is_reused_only_forward(
    start_engine: StartEngine, tiny_mamba: Path
) -> None:
    engine = start_engine(tiny_mamba)
    engine.open("s", PLAIN, context())
    first = engine.generate("s", PROMPT, max_tokens=10, ignore_eos=True)
    forward = engine.generate("s", (*PROMPT, *first.tokens, 5), max_tokens=5, reuse=True)
    assert forward.cached_tokens == len(PROMPT) + 9
    back = engine.generate("s", PROMPT, max_tokens=10, ignore_eos=True, reuse=True)
    assert back.cached_tokens == 0
    assert back.tokens == first.tokens


@pytest.mark.parametrize("name", ["tiny_target", "tiny_mamba"])
def test_a_session_goes_on_where_the_copied_one_stood(
    start_engine: StartEngine, request: pytest.FixtureRequest, name: str
) -> None:
    engine = start_engine(request.getfixturevalue(name))
    switched = NGRAM if name == "tiny_target" else PLAIN
    engine.open("a", PLAIN, context())
    first = engine.generate("a", PROMPT, max_tokens=20, ignore_eos=True)
    prompt = (*PROMPT, *first.tokens, 9, 5)
    engine.open("b", switched, context(512), copy_from="a")
    copied = engine.generate("b", prompt, max_tokens=30, ignore_eos=True, reuse=True)
    assert copied.cached_tokens == len(PROMPT) + 19
    fresh = engine.generate("a", prompt, max_tokens=30, ignore_eos=True)
    assert copied.tokens == fresh.tokens
    engine.open("b", switched, context(), copy_from="b")  # a session may replace itself
    again = engine.generate("b", prompt, max_tokens=30, ignore_eos=True, reuse=True)
    assert again.tokens == fresh.tokens


def test_a_conversation_too_long_for_the_new_context_is_an_error(engine: Engine) -> None:
    engine.open("long", PLAIN, context(512))
    engine.generate("long", (BOS, *[5] * 400), max_tokens=1)
    with pytest.raises(EngineFailed, match="could not be copied"):
        engine.open("short", PLAIN, context(256), copy_from="long")
    with pytest.raises(EngineFailed, match="No session 'short'"):
        engine.generate("short", PROMPT)
    engine.close_session("long")


def test_a_probe_and_a_replay_leave_the_engine_usable(engine: Engine, plain: str) -> None:
    engine.open("s", NGRAM, context())
    probed = engine.probe("s", PROMPT, (1, 2, 5))
    assert probed.equal == {1: True, 2: True, 5: True}
    assert max(probed.max_difference.values()) == 0
    run = engine.generate("s", PROMPT, max_tokens=30, ignore_eos=True, record=True)
    found = engine.replay("s", plain, PROMPT, run, 20, SamplerSettings())
    assert found.reproduced
    assert (found.margin, found.max_difference) == (0, 0)
    again = engine.generate("s", PROMPT, max_tokens=30, ignore_eos=True, reuse=True)
    assert (again.tokens, again.cached_tokens) == (run.tokens, 0)
    engine.close_session("s")


def test_more_tokens_than_a_session_verifies_are_refused(engine: Engine, plain: str) -> None:
    """They would be read from beyond the end of the batch."""
    engine.open("s", NGRAM, context())
    run = engine.generate("s", PROMPT, max_tokens=30, ignore_eos=True, record=True)
    for session, size in ((plain, 2), ("s", 6)):
        with pytest.raises(EngineFailed, match=f"verifies at most {size - 1} tokens"):
            engine.probe(session, PROMPT, (1, size))
    with pytest.raises(EngineFailed, match="verifies at most 1 tokens"):
        engine.replay(plain, plain, PROMPT, run, 20, SamplerSettings())
    engine.close_session("s")


# ---- text, and what cannot be sent ------------------------------------------------------------


def test_tokenize(start_engine: StartEngine, tiny_bytes: Path) -> None:
    engine = start_engine(tiny_bytes)
    assert engine.tokenize("<|im_", "end|>").count(3) == 0
    assert engine.tokenize("<|im_end|>", bos=False) == (3,)
    assert engine.tokenize("") == (BOS,)
    assert engine.tokenize("a\udc80b") == engine.tokenize("a?b")
    assert engine.tokenize("x" * 300_000, bos=False) == (4 + ord("x"),) * 300_000


def test_what_has_no_encoding_is_a_usage_error(engine: Engine, plain: str) -> None:
    with pytest.raises(UsageError, match="not valid Unicode"):
        engine.load("caf\udce9.gguf")
    with pytest.raises(UsageError, match="not valid Unicode"):
        engine.generate(plain, PROMPT, stop=("\ud800",))
    with pytest.raises(UsageError, match="64 bits"):
        engine.generate(plain, PROMPT, sampler=SamplerSettings(seed=10**30))
    assert engine.generate(plain, PROMPT, max_tokens=2).tokens


def test_a_request_that_is_not_understood_is_an_error(engine: Engine, plain: str) -> None:
    odd = ContextSettings(256, 1, flash_attn="perhaps")  # type: ignore[arg-type]
    with pytest.raises(EngineFailed, match="does not understand.*perhaps"):
        engine.open("s", PLAIN, odd)
    assert engine.generate(plain, PROMPT, max_tokens=2).tokens


def test_a_log_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "engine.log"):
        with pytest.raises(UsageError, match="log file .* cannot be written") as caught:
            Engine(log_file=path)
        assert "--log-file" in caught.value.hint


def test_an_end_of_generation_is_counted_and_has_no_text(
    start_engine: StartEngine, tiny_silent: Path
) -> None:
    engine = start_engine(tiny_silent)
    engine.open("s", PLAIN, context())
    run = engine.generate("s", PROMPT, max_tokens=10)
    assert (run.tokens, run.text, run.stop) == ((EOS,), "", "eog")


def test_connect_ends_an_engine_whose_model_does_not_load(
    monkeypatch: pytest.MonkeyPatch, tiny_target: Path, tmp_path: Path
) -> None:
    started: list[Engine] = []

    class Watched(Engine):
        def __init__(self, *, log_file: Path | None = None) -> None:
            super().__init__(log_file=log_file)
            started.append(self)

    monkeypatch.setattr(client, "Engine", Watched)
    with client.connect(tiny_target, LoadSettings(), tmp_path / "log") as engine:
        assert engine.model.path == str(tiny_target)
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF nonsense")
    with pytest.raises(LocalspecError):
        client.connect(bad, LoadSettings())
    assert [e.alive for e in started] == [False, False]


def test_tokens_are_shown_by_their_texts(engine: Engine) -> None:
    ids = engine.tokenize("ab c")
    assert b"".join(engine.pieces(ids)).endswith(b"ab c")
