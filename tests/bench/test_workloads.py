import json

import pytest

from localspec.bench.workloads import load
from localspec.errors import UsageError


def test_the_built_in_workloads_hold_8_and_9_different_prompts():
    chat, code = load(())
    assert (chat.name, code.name) == ("chat8", "code9")
    assert (len(chat.prompts), len(code.prompts)) == (8, 9)
    texts = {p.messages for w in (chat, code) for p in w.prompts}
    assert len(texts) == 17
    assert all(p.messages[-1][0] == "user" for w in (chat, code) for p in w.prompts)


def test_a_workload_named_twice_is_used_once():
    assert [w.name for w in load(("code9", "code9"))] == ["code9"]


def test_a_text_file_has_one_prompt_a_line(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_bytes("\ufeffWarum ist der Himmel blau?\r\n\r\n  Und das Gras grün?  ".encode())
    (workload,) = load((str(file),))
    assert workload.name == "mine"
    assert [p.messages for p in workload.prompts] == [
        (("user", "Warum ist der Himmel blau?"),),
        (("user", "Und das Gras grün?"),),
    ]
    assert [p.id for p in workload.prompts] == ["line-1", "line-3"]


def test_a_json_lines_file_has_prompts_or_conversations(tmp_path):
    file = tmp_path / "talk.jsonl"
    talk = [{"role": "user", "content": "a\nb"}, {"role": "assistant", "content": "c"}]
    rows = [{"id": "x", "prompt": "one"}, {"messages": [*talk, talk[0]], "category": "y"}]
    file.write_text("\n".join(json.dumps(r) for r in rows))
    (workload,) = load((str(file),))
    assert [p.id for p in workload.prompts] == ["x", "line-2"]
    assert workload.prompts[1].messages == (
        ("user", "a\nb"),
        ("assistant", "c"),
        ("user", "a\nb"),
    )


def test_files_of_one_name_in_two_folders_stay_apart(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.txt").write_text(folder)
    names = [w.name for w in load([str(tmp_path / f / "same.txt") for f in ("a", "b")])]
    assert names[0] == "same"
    assert len(set(names)) == 2


def test_one_prompt_is_a_workload_of_its_own():
    (workload,) = load((), "Why?")
    assert workload.prompts[0].messages == (("user", "Why?"),)


def test_a_system_message_goes_first_but_never_replaces_the_prompts_own(tmp_path):
    (workload,) = load((), "Why?")
    assert workload.prompts[0].with_system("Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
    ]
    file = tmp_path / "s.jsonl"
    own = [{"role": "system", "content": "mine"}, {"role": "user", "content": "?"}]
    file.write_text(json.dumps({"messages": own}))
    (workload,) = load((str(file),))
    assert workload.prompts[0].with_system("Be brief.") == own


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("e.txt", "\n \n", "holds no prompts"),
        ("e.jsonl", "", "holds no prompts"),
        ("x.jsonl", '{"prompt": "a"}\n{"prompt": ', "line 2"),
        ("x.jsonl", '{"prompt": ""}', "line 1: prompt"),
        ("x.jsonl", '{"text": "a"}', 'either "prompt" or "messages"'),
        ("x.jsonl", '{"messages": [{"role": "assistant", "content": "a"}]}', '"user"'),
        ("x.jsonl", '{"messages": [{"role": "tool", "content": "a"}]}', "messages.0.role"),
        ("x.jsonl", '{"id": "a", "prompt": "1"}\n{"id": "a", "prompt": "2"}', "twice"),
        ("x.csv", "a,b", "neither .txt nor .jsonl"),
        ("x.txt", b"\xff\xfe\x00", "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_gets_a_sentence_and_a_next_step(tmp_path, name, content, said):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as error:
        load((str(file),))
    assert said in error.value.message
    assert error.value.hint
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("names", "prompt", "said"),
    [
        (("chat9",), None, "Did you mean chat8?"),
        (("/nowhere/x.txt",), None, "does not exist"),
        (("/",), None, "is a folder"),
        (("chat8",), "hello", "exclude each other"),
        ((), " \n", "empty"),
    ],
)
def test_words_that_name_no_workload(names, prompt, said):
    with pytest.raises(UsageError) as error:
        load(names, prompt)
    assert said in str(error.value)
