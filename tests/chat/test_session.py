"""A chat session: settings by their priority, drafters switched between turns, engines that die."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.catalog import AUTO_LENGTH, AUTO_NGRAM_LENGTH, P_MIN, DrafterSpec, Target
from localspec.chat import session as module
from localspec.chat.conversation import Message
from localspec.chat.session import Answer, ChatSession, Origin
from localspec.chat.settings import choose_sampler
from localspec.errors import (
    ContextTooSmall,
    DrafterError,
    EngineDied,
    SpeculationRefused,
    UsageError,
)
from localspec.records import (
    ChatOptions,
    Counts,
    DrafterSettings,
    EngineOptions,
    Generation,
    StopReason,
)
from tests.chat.scripted import END, ODD, ScriptedEngine, model_info, odd, said, tokenize

DRAFT = DrafterSpec("small", "draft-model", Path("/models/small.gguf"), n_max=3, recommended=True)
NGRAM = DrafterSpec("ngram", "ngram")


def target(**changes: Any) -> Target:
    facts = {"name": "t", "path": Path("/models/scripted.gguf"), "title": "T"}
    return Target(**{**facts, "drafters": (DRAFT, NGRAM), **changes})


@pytest.fixture(autouse=True)
def catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(_target: Target, names: tuple[str, ...]) -> tuple[DrafterSpec, ...]:
        known = {"auto": DRAFT, "small": DRAFT, "ngram": NGRAM, "none": DrafterSpec("none", "none")}
        if names[0] not in known:
            raise UsageError(f"no drafter {names[0]!r}")
        return (known[names[0]],)

    monkeypatch.setattr(module, "resolve_target", lambda _name: target())
    monkeypatch.setattr(module, "resolve_drafters", resolve)


def session(scripted: ScriptedEngine, **options: Any) -> ChatSession:
    chosen = ChatOptions(**{"model": "t", **options})
    return ChatSession(chosen, connect=scripted.connect)  # type: ignore[arg-type]


def finish(answer: Answer) -> str:
    return "".join(span.text for e in answer if hasattr(e, "spans") for span in e.spans)


# ---- settings --------------------------------------------------------------------------------


def test_sampling_is_the_person_s_else_the_catalogue_s_else_the_gguf_s_else_ours() -> None:
    asked = ChatOptions("t", engine=EngineOptions(sampler={"top_k": 5}))
    recommended = target(sampling={"top_k": 10, "min_p": 0.2})
    model = model_info(sampling={"top_k": 20.0, "min_p": 0.3, "top_p": 0.5, "mirostat": 2.0})
    chosen = choose_sampler(asked, recommended, model.sampling)
    assert (chosen.top_k, chosen.min_p, chosen.top_p, chosen.temperature) == (5, 0.2, 0.5, 0.7)
    whole = choose_sampler(ChatOptions("t"), target(), {"top_k": 20.0})
    assert isinstance(whole.top_k, int)


def test_every_answer_has_a_seed_of_its_own_unless_one_was_given() -> None:
    engine = ScriptedEngine(said("a"), said("b"), said("c"))
    with session(engine) as chat:
        for question in ("1", "2", "3"):
            finish(chat.ask(question))
            assert chat.last_seed == engine.samplers[-1].seed
    assert len({s.seed for s in engine.samplers}) == 3
    engine = ScriptedEngine(said("a"), said("b"), said("c"))
    with session(engine, engine=EngineOptions(sampler={"seed": 7})) as chat:
        finish(chat.ask("1"))
        finish(chat.ask("2"))
        finish(chat.regenerate())
    assert [s.seed for s in engine.samplers] == [7, 7, 8]


def test_the_drafter_is_the_recommended_one_with_its_own_draft_length() -> None:
    engine = ScriptedEngine(said("a"))
    with session(engine) as chat:
        chat.start()
    assert engine.opened[0][1] == DrafterSettings(
        "draft-model", "small", "/models/small.gguf", n_max=3, p_min=P_MIN
    )
    engine = ScriptedEngine(said("a"))
    with session(engine, drafter="ngram", n_max=6, p_min=0.1) as chat:
        chat.start()
    assert engine.opened[0][1] == DrafterSettings("ngram", "ngram", n_max=6, p_min=0.1)


def test_one_drafter_at_a_time() -> None:
    for words in ("all", "ngram+all"):
        with pytest.raises(UsageError, match="one drafter") as refused:
            session(ScriptedEngine(), drafter=words)
        assert "chat" not in str(refused.value)  # it may be a run


def test_the_context_of_a_chat_is_4096_or_what_the_model_was_trained_on() -> None:
    for trained, expected in ((2048, 2048), (131072, 4096), (0, 4096)):
        with session(ScriptedEngine(n_ctx_train=trained)) as chat:
            chat.start()
            assert chat.n_ctx == expected
    with session(ScriptedEngine(), engine=EngineOptions(ctx=512)) as chat:
        chat.start()
        assert chat.n_ctx == 512


def test_the_context_of_a_run_is_the_smallest_that_fits() -> None:
    engine = ScriptedEngine(said("a"), n_ctx_train=100_000)
    with session(engine, max_tokens=100) as chat:
        finish(chat.complete("x" * 1000))
        assert chat.n_ctx == 1280
    small = session(ScriptedEngine(), engine=EngineOptions(ctx=64))
    with small as chat, pytest.raises(ContextTooSmall, match="but the context holds 64"):
        chat.complete("x" * 64)


def test_a_raw_prompt_goes_to_the_model_as_it_is() -> None:
    engine = ScriptedEngine(said("a"))
    with session(engine, raw=True) as chat:
        finish(chat.complete("<|im_start|>x"))
    assert engine.prompts == [tokenize(("<|im_start|>x",))]


def test_chatml_on_a_vocabulary_without_it_stops_at_its_end_text() -> None:
    engine = ScriptedEngine(said("a"), special_tokens=("</s>",))
    with session(engine, stop=("END",)) as chat:
        finish(chat.ask("Hi"))
        assert any("no chat template" in notice for notice in chat.take_notices())
        finish_notices = chat.take_notices()
    assert engine.stops == [("END", "<|im_end|>")]
    assert finish_notices == []


def hardly(steps: int, accepted: int = 1) -> Generation:
    counts = Counts(steps, steps, steps, steps, 3 * steps, accepted)
    return replace(said("a"), counts=counts)


def suspicions(chat: ChatSession) -> list[str]:
    return [notice for notice in chat.take_notices() if "accepted" in notice]


def test_a_drafter_that_is_hardly_ever_right_is_named_once() -> None:
    """After 50 steps with drafts, over several answers."""
    engine = ScriptedEngine(hardly(30), hardly(19), hardly(1), hardly(50))
    with session(engine) as chat:
        for question in ("1", "2"):
            finish(chat.ask(question))
            assert suspicions(chat) == []
        finish(chat.ask("3"))
        (notice,) = suspicions(chat)
        assert notice.startswith("small: hardly any of its drafted tokens are accepted")
        assert "made for this model?" in notice
        finish(chat.ask("4"))
        assert suspicions(chat) == []


def test_a_quantised_drafter_cache_is_what_is_suspected_first() -> None:
    options = EngineOptions(draft_kv_type="q8_0")
    with session(ScriptedEngine(hardly(50)), engine=options) as chat:
        finish(chat.ask("1"))
        (notice,) = suspicions(chat)
    assert "Its q8_0 cache may be why: try --draft-kv-type f16." in notice


def test_no_drafter_is_suspected_without_reason() -> None:
    engine = ScriptedEngine(hardly(50, accepted=8), hardly(49), hardly(50))
    with session(engine) as chat:
        finish(chat.ask("5.3 % are accepted"))
        chat.use_drafter("ngram")
        finish(chat.ask("another drafter starts anew, and too few steps"))
        finish(chat.ask("repetitions may be rare: that is no fault of ngram's"))
        assert suspicions(chat) == []


def test_the_same_notice_is_given_once() -> None:
    engine = ScriptedEngine(said("a"), said("b"))
    with session(engine) as chat:
        finish(chat.ask("1"))
        assert len(chat.take_notices()) == 1
        finish(chat.ask("2"))
        assert chat.take_notices() == []


# ---- turns -----------------------------------------------------------------------------------


def test_turns_build_on_the_ids_of_the_turns_before() -> None:
    engine = ScriptedEngine(said("Hello"), said("Ciao"))
    with session(engine) as chat:
        assert finish(chat.ask("Hi")) == "Hello"
        assert finish(chat.ask("Bye")) == "Ciao"
    first, second = engine.prompts
    assert second[: len(first) + 6] == first + odd("Hello") + (END,)


def test_an_answer_stopped_before_its_first_token_leaves_no_trace() -> None:
    engine = ScriptedEngine(said("", stop="cancelled", tokens=()), said("Hello"))
    with session(engine) as chat:
        finish(chat.ask("Hi"))
        assert chat.conversation.messages == []
        assert "before its first token" in chat.take_notices()[-1]
        finish(chat.ask("Hi"))
    assert engine.prompts[0] == engine.prompts[1]


def test_an_empty_answer_leaves_no_trace_and_is_counted() -> None:
    engine = ScriptedEngine(said(""))
    with session(engine) as chat:
        finish(chat.ask("Hi"))
        assert chat.conversation.messages == []
        assert "empty answer" in chat.take_notices()[-1]
        assert chat.totals.answers == 1


def test_an_answer_generated_again_replaces_the_old_one_unless_it_is_empty() -> None:
    engine = ScriptedEngine(said("one"), said("two"), said("", stop="cancelled", tokens=()))
    with session(engine) as chat:
        finish(chat.ask("Hi"))
        finish(chat.regenerate())
        assert [m.content for m in chat.conversation.messages] == ["Hi", "two"]
        finish(chat.regenerate())
        assert [m.content for m in chat.conversation.messages] == ["Hi", "two"]
    assert engine.prompts[0] == engine.prompts[1] == engine.prompts[2]


def test_there_is_nothing_to_generate_again_at_first() -> None:
    with session(ScriptedEngine()) as chat, pytest.raises(UsageError, match="no answer"):
        chat.regenerate()


def test_a_question_too_long_for_the_context_is_not_kept() -> None:
    with session(ScriptedEngine(), engine=EngineOptions(ctx=64)) as chat:
        with pytest.raises(ContextTooSmall):
            chat.ask("x" * 100)
        assert chat.conversation.messages == []


@pytest.mark.parametrize("how", ["ask", "edit"])
@pytest.mark.parametrize("end", ["too long", "stopped", "died"])
def test_a_question_that_comes_to_nothing_drops_no_turn_from_the_context(
    how: str, end: str
) -> None:
    ends = {
        "too long": [],
        "stopped": [said("", stop="cancelled", tokens=(), prompt_tokens=330)],
        "died": [("", EngineDied("signal 9", []))],
    }
    engine = ScriptedEngine(said("1", prompt_tokens=40), said("2"), *ends[end], said("3"))
    with session(engine, engine=EngineOptions(ctx=400)) as chat:
        finish(chat.ask("one?"))
        finish(chat.ask("two?"))
        before, held = list(chat.conversation.messages), chat.held
        with suppress(ContextTooSmall, EngineDied):
            finish(getattr(chat, how)("x" * (500 if end == "too long" else 320)))
        assert chat.conversation.messages == before
        assert chat.held == (None if end == "died" else held)
        finish(chat.ask("three?"))
    assert "one?" in "".join(chr(i) for i in engine.prompts[-1] if i < ODD)


def test_dropped_turns_are_said() -> None:
    engine = ScriptedEngine(*[said("y" * 40) for _ in range(6)])
    with session(engine, engine=EngineOptions(ctx=400)) as chat:
        for question in range(6):
            finish(chat.ask(f"question {question}"))
        assert any("dropped from the context of 400 tokens" in n for n in chat.take_notices())


# ---- switching drafters ----------------------------------------------------------------------


def test_a_switch_copies_the_state_and_closes_the_old_session() -> None:
    engine = ScriptedEngine(said("a"), said("b"))
    with session(engine) as chat:
        finish(chat.ask("1"))
        chat.speculate(on=False)
        chat.speculate(on=True)
        chat.use_drafter("ngram")
        finish(chat.ask("2"))
    assert [(d.name, source) for _, d, source in engine.opened] == [
        ("small", None),
        ("none", "chat-1"),
        ("small", "chat-2"),
        ("ngram", "chat-3"),
    ]
    assert engine.closed == ["chat-1", "chat-2", "chat-3"]


def test_a_drafter_that_does_not_fit_leaves_the_old_one_in_place() -> None:
    engine = ScriptedEngine(said("a"), said("b"))
    with session(engine) as chat:
        finish(chat.ask("1"))
        engine.refuse_open.append(DrafterError("another vocabulary"))
        with pytest.raises(DrafterError):
            chat.use_drafter("ngram")
        assert chat.drafter.name == "small"
        finish(chat.ask("2"))
        with pytest.raises(UsageError, match="nosuch"):
            chat.use_drafter("nosuch")
    assert len(engine.opened) == 1
    assert engine.closed == []


def test_the_draft_length_can_be_changed_and_stays() -> None:
    with session(ScriptedEngine()) as chat:
        chat.start()
        chat.draft_length(7)
        chat.use_drafter("ngram")
        assert chat.drafter.n_max == 7
        chat.draft_length("auto")
        assert (chat.drafter.auto, chat.drafter.n_max) == (True, AUTO_NGRAM_LENGTH)
        chat.use_drafter("small")
        assert (chat.drafter.auto, chat.drafter.n_max) == (True, AUTO_LENGTH)
        chat.draft_length(2)
        assert (chat.drafter.auto, chat.drafter.n_max) == (False, 2)
        with pytest.raises(UsageError):
            chat.draft_length(0)
        chat.speculate(on=False)
        with pytest.raises(UsageError, match="off"):
            chat.draft_length(3)


def test_speculation_that_is_refused_is_left_out_unless_it_was_asked_for() -> None:
    refusal = SpeculationRefused("recurrent memory")
    engine = ScriptedEngine(said("a"))
    engine.refuse_open.append(refusal)
    with session(engine) as chat:
        chat.start()
        assert chat.drafter.method == "none"
        assert "recurrent memory" in chat.take_notices()[0]
    engine.refuse_open.append(refusal)
    with session(engine, drafter="small") as chat, pytest.raises(SpeculationRefused):
        chat.start()


# ---- engines that die ------------------------------------------------------------------------

DIED = EngineDied("signal SIGKILL", ["last line"], "/tmp/engine.log")


def test_a_dead_engine_keeps_what_had_arrived_and_a_new_one_goes_on() -> None:
    engine = ScriptedEngine(said("Hello"), ("Par", DIED), said("Back"))
    with session(engine) as chat:
        finish(chat.ask("Hi"))
        with pytest.raises(EngineDied):
            finish(chat.ask("Tell me"))
        assert [m.content for m in chat.conversation.messages][-2:] == ["Tell me", "Par"]
        assert finish(chat.ask("Again")) == "Back"
    assert engine.starts == 2
    assert [source for _, _, source in engine.opened] == [None, None]
    assert engine.prompts[2][: len(engine.prompts[1])] == engine.prompts[1]


def test_an_engine_that_dies_at_once_leaves_no_trace_of_the_question() -> None:
    engine = ScriptedEngine(("", DIED))
    with session(engine) as chat:
        with pytest.raises(EngineDied):
            finish(chat.ask("Hi"))
        assert chat.conversation.messages == []


def test_an_engine_that_died_between_turns_is_started_again() -> None:
    engine = ScriptedEngine(said("a"), said("b"))
    with session(engine) as chat:
        finish(chat.ask("1"))
        engine.alive = False
        finish(chat.ask("2"))
        assert len(chat.conversation.messages) == 4
    assert engine.starts == 2


def test_a_changed_question_takes_the_old_one_s_place_or_nothing_changes() -> None:
    engine = ScriptedEngine(said("one"), said("two"), said("three"), said(""))
    with session(engine) as chat:
        with pytest.raises(UsageError, match="no question"):
            chat.edit("nothing")
        finish(chat.ask("a"))
        finish(chat.ask("b"))
        finish(chat.edit("c"))
        assert [m.content for m in chat.conversation.messages] == ["a", "one", "c", "three"]
        finish(chat.edit("d"))  # the model says nothing
        assert [m.content for m in chat.conversation.messages] == ["a", "one", "c", "three"]


def test_another_conversation_goes_on_from_its_messages() -> None:
    engine = ScriptedEngine(said("one"), said("two"))
    with session(engine) as chat:
        finish(chat.ask("a"))
        chat.begin([(Message("user", "x"), None), (Message("assistant", "y"), None)], system="S")
        with pytest.raises(UsageError, match="cannot be run again"):
            chat.baseline(lambda _chunk: None)
        finish(chat.ask("b"))
        assert [m.content for m in chat.conversation.messages] == ["x", "y", "b", "two"]
        assert engine.prompts[-1][: len(tokenize(("<|im_start|>system\nS",)))] == tokenize(
            ("<|im_start|>system\nS",)
        )


# ---- opened again ----------------------------------------------------------------------------


def talked(engine: ScriptedEngine, **options: Any) -> list[tuple[Message, Origin | None]]:
    """Two turns, with what is kept of each."""
    kept: list[tuple[Message, Origin | None]] = []
    with session(engine, **options) as chat:
        for question in ("1", "2"):
            finish(chat.ask(question))
            asked, answered = chat.conversation.messages[-2:]
            kept += [(asked, None), (answered, chat.origin)]
    return kept


def test_a_conversation_begun_with_its_origins_goes_on_with_the_ids_it_had() -> None:
    engine = ScriptedEngine(said("one"), said("two"), said("two"), said("two"), said("three"))
    kept = talked(engine)
    with session(engine) as chat:
        chat.begin(kept)
        assert chat.held is None
        chat.baseline(lambda _chunk: None)
        chat.score()
        assert engine.prompts[1] == engine.prompts[2] == engine.prompts[3]
        assert engine.samplers[1] == engine.samplers[2] == engine.samplers[3]
        assert chat.held == len(said("two").tokens)  # the script's prompts count no tokens
        finish(chat.ask("3"))
        assert engine.prompts[4][: len(engine.prompts[1])] == engine.prompts[1]
        assert set(odd("two")) <= set(engine.prompts[4])


@pytest.mark.parametrize(("stop", "room"), [("eog", 2), ("length", 0)])
def test_a_run_for_p_and_q_has_the_room_that_the_answer_had(stop: StopReason, room: int) -> None:
    """A draft that reached beyond the end would else be cut."""
    one = replace(said("one", stop=stop), drafts=((1,), (2, 3)))
    engine = ScriptedEngine(one, one)
    with session(engine) as chat:
        finish(chat.ask("1"))
        chat.score()
        assert engine.max_tokens[1] == len(one.tokens) + room


def test_a_run_for_p_and_q_has_the_drafter_that_the_answer_had() -> None:
    """In a session beside the conversation's, which keeps the one that was chosen since then."""
    engine = ScriptedEngine(*[said("one")] * 4)
    with session(engine) as chat:
        finish(chat.ask("1"))
        made_with = chat.drafter
        chat.score(made_with)
        assert len(engine.opened) == 1
        chat.use_drafter("ngram")
        chat.score(made_with)
        assert engine.opened[-1] == ("chat-scores", made_with, "chat-2")
        assert engine.closed == ["chat-1", "chat-scores"]
        assert engine.prompts[0] == engine.prompts[2]
        finish(chat.ask("2"))
        assert chat.drafter.name == "ngram"
        assert len(engine.opened) == 3


@pytest.mark.parametrize("what", ["system", "prompt", "model", "none"])
def test_an_answer_is_not_run_again_from_another_prompt_or_model(what: str) -> None:
    engine = ScriptedEngine(said("one"), said("two"))
    *before, (message, origin) = talked(engine)
    assert origin is not None
    changed = {
        "prompt": replace(origin, prompt=origin.prompt + 1),
        "model": replace(origin, model="/models/other.gguf"),
        "none": None,
    }
    with session(engine) as chat:
        system = "Another." if what == "system" else ""
        chat.begin([*before, (message, changed.get(what, origin))], system=system)
        with pytest.raises(UsageError, match="cannot be run again"):
            chat.baseline(lambda _chunk: None)
        assert [m.content for m in chat.conversation.messages] == ["1", "one", "2", "two"]


def test_an_answer_that_the_engine_died_in_is_not_run_again() -> None:
    engine = ScriptedEngine(said("one"), ("tw", EngineDied("signal SIGKILL", [])))
    with session(engine) as chat:
        finish(chat.ask("1"))
        assert chat.origin is not None and chat.held == len(said("one").tokens)
        with pytest.raises(EngineDied):
            finish(chat.ask("2"))
        assert chat.origin is None
        assert chat.held is None
        with pytest.raises(UsageError, match="cannot be run again"):
            chat.baseline(lambda _chunk: None)
