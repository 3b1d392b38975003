"""A conversation keeps the generated ids, drops the oldest turns when full, and can be saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.chat.conversation import Conversation
from localspec.chat.template import CHATML, ChatTemplate
from localspec.errors import ContextTooSmall, UsageError
from tests.chat.scripted import END, SPECIAL, odd, said, tokenize

STRIPS_THINKING = """\
{%- for m in messages -%}
<|im_start|>{{ m.role }}
{{ m.content.split('</think>')[-1] | trim }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}"""


def conversation(source: str = CHATML, **facts: object) -> Conversation:
    template = ChatTemplate(source, "<|im_start|>", "<|im_end|>", SPECIAL)
    return Conversation(template, **facts)  # type: ignore[arg-type]


def test_the_next_prompt_begins_with_the_very_ids_of_the_last_turn() -> None:
    talk = conversation()
    talk.ask("Hi")
    first = talk.prompt(tokenize, 1000, 0)
    assert first.ids == tokenize(("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",))
    talk.answered(first, said("Hello"))
    talk.ask("Bye")
    second = talk.prompt(tokenize, 1000, 0)
    new = "<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    assert second.ids == first.ids + odd("Hello") + tokenize((new,))


def test_ids_of_all_turns_are_kept_not_only_of_the_last() -> None:
    talk = conversation()
    for question, answer in (("a", "one"), ("b", "two"), ("c", "three")):
        talk.ask(question)
        talk.answered(talk.prompt(tokenize, 1000, 0), said(answer))
    talk.ask("d")
    ids = talk.prompt(tokenize, 1000, 0).ids
    for answer in ("one", "two", "three"):
        assert set(odd(answer)) <= set(ids)


@pytest.mark.parametrize("stop", ["length", "cancelled", "context"])
def test_an_answer_that_was_cut_keeps_all_its_ids(stop: str) -> None:
    talk = conversation()
    talk.ask("Hi")
    first = talk.prompt(tokenize, 1000, 0)
    talk.answered(first, said("Hel", stop=stop))  # type: ignore[arg-type]
    talk.ask("Go on")
    ids = talk.prompt(tokenize, 1000, 0).ids
    assert ids[: len(first.ids) + 4] == first.ids + odd("Hel") + (END,)


def test_ids_behind_a_stop_string_are_not_kept_because_their_text_was_cut() -> None:
    talk = conversation()
    talk.ask("Hi")
    first = talk.prompt(tokenize, 1000, 0)
    talk.answered(first, said("Hello", stop="stop", tokens=odd("Hello STOP")))
    talk.ask("Bye")
    ids = talk.prompt(tokenize, 1000, 0).ids
    assert ids[: len(first.ids) + 6] == first.ids + tokenize(("Hello<|im_end|>",))


def test_a_template_that_strips_thinking_keeps_the_ids_up_to_the_answer() -> None:
    talk = conversation(STRIPS_THINKING)
    talk.ask("Hi")
    first = talk.prompt(tokenize, 1000, 0)
    talk.answered(first, said("<think>hm</think>\n\nHello"))
    talk.ask("Bye")
    second = talk.prompt(tokenize, 1000, 0)
    assert "hm" not in second.text
    assert second.ids == first.ids + tokenize((second.text[len(first.text) :],))
    talk.answered(second, said("Ciao"))
    talk.ask("?")
    third = talk.prompt(tokenize, 1000, 0)
    assert third.ids[: len(second.ids) + 4] == second.ids + odd("Ciao")


def test_special_tokens_in_a_later_question_cannot_form_next_to_kept_ids() -> None:
    talk = conversation()
    talk.ask("Hi")
    talk.answered(talk.prompt(tokenize, 1000, 0), said("Hello"))
    talk.ask("<|im_end|><|im_end|>")
    ids = talk.prompt(tokenize, 1000, 0).ids
    assert ids.count(END) == 3  # the template's own


def test_an_answer_can_be_generated_again_from_the_same_ids() -> None:
    talk = conversation()
    talk.ask("Hi")
    first = talk.prompt(tokenize, 1000, 0)
    talk.answered(first, said("Hello"))
    assert talk.drop_answer()
    assert talk.prompt(tokenize, 1000, 0).ids == first.ids
    assert not talk.drop_answer()


# ---- a full context --------------------------------------------------------------------------


def long_talk(turns: int) -> Conversation:
    talk = conversation(system="Be brief.")
    for i in range(turns):
        talk.ask(f"question {i}")
        talk.answered(talk.prompt(tokenize, 10**6, 0), said(f"answer {i}"))
    talk.ask("last question")
    return talk


def test_the_oldest_turns_are_dropped_until_half_the_context_is_free() -> None:
    talk = long_talk(10)
    full = talk.prompt(tokenize, 10**6, 0)
    n_ctx = len(full.ids) + 10
    prompt = talk.prompt(tokenize, n_ctx, 50)
    assert 0 < prompt.dropped < 10
    assert len(prompt.ids) <= n_ctx // 2
    assert "Be brief." in prompt.text
    assert "question 0" not in prompt.text
    assert "answer 9" in prompt.text
    assert "last question" in prompt.text
    assert len(talk.messages) == 21  # the transcript is whole
    assert talk.prompt(tokenize, n_ctx, 50).dropped == 0


def test_nothing_is_dropped_while_the_answer_has_room() -> None:
    talk = long_talk(10)
    full = talk.prompt(tokenize, 10**6, 0)
    assert talk.prompt(tokenize, len(full.ids) + 50, 50) == full


def test_a_question_longer_than_the_context_is_refused_with_both_numbers() -> None:
    talk = long_talk(3)
    talk.drop_turn()
    talk.ask("x" * 500)
    with pytest.raises(ContextTooSmall, match=r"5\d\d tokens but the context holds 400"):
        talk.prompt(tokenize, 400, 50)
    assert talk.first == 0


# ---- files -----------------------------------------------------------------------------------


def test_a_saved_conversation_goes_on_with_the_same_ids(tmp_path: Path) -> None:
    talk = conversation(system="Be brief.")
    talk.ask("Hi 👋 <|im_end|>")
    talk.answered(talk.prompt(tokenize, 1000, 0), said("Hello"))
    file = tmp_path / "talk.json"
    talk.save(file, "m.gguf", {"drafter": {"n_max": 3}})
    again = Conversation.load(file, talk.template, "m.gguf")
    assert again == talk
    for one in (talk, again):
        one.ask("Bye")
    assert again.prompt(tokenize, 1000, 0) == talk.prompt(tokenize, 1000, 0)
    saved = json.loads(file.read_text(encoding="utf-8"))
    assert saved["messages"][1] == {"role": "assistant", "content": "Hello"}
    assert saved["settings"] == {"drafter": {"n_max": 3}}


def test_another_model_reads_the_messages_but_not_the_ids(tmp_path: Path) -> None:
    talk = conversation()
    talk.ask("Hi")
    talk.answered(talk.prompt(tokenize, 1000, 0), said("Hello"))
    talk.save(tmp_path / "talk.json", "m.gguf", {})
    again = Conversation.load(tmp_path / "talk.json", talk.template, "other.gguf")
    assert again.messages == talk.messages
    assert again.marks == []


QUESTION = '{"role": "user", "content": "Hi"}'


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"model": "m", "messages": 3}',
        '{"model": "m", "messages": [], "format": "x"}',
        f'{{"model": "m", "messages": [{QUESTION}]}}',
        f'{{"model": "m", "messages": [{QUESTION}, {QUESTION}]}}',
        '{"model": "m", "messages": [], "first": 2}',
    ],
)
def test_a_file_that_is_no_conversation_is_refused_by_name(tmp_path: Path, content: str) -> None:
    file = tmp_path / "no.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=r"no\.json is not a saved conversation"):
        Conversation.load(file, conversation().template, "m.gguf")


def test_files_that_cannot_be_reached_are_named(tmp_path: Path) -> None:
    missing = tmp_path / "no" / "talk.json"
    with pytest.raises(UsageError, match=r"cannot be written to .*talk\.json: No such file"):
        conversation().save(missing, "m.gguf", {})
    with pytest.raises(UsageError, match=r"talk\.json cannot be read: No such file"):
        Conversation.load(missing, conversation().template, "m.gguf")
