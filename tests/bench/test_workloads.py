import json

import pytest
from hub_server import Fault

from localspec.bench.depth import filled
from localspec.bench.workloads import BUILT_IN, Prompt, at_depths, load
from localspec.chat.export import to_json
from localspec.errors import HubError, UsageError
from localspec.store import Talk, Turn


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


def test_every_built_in_workload_has_enough_prompts_for_an_interval():
    workloads = load(tuple(BUILT_IN))
    assert [w.name for w in workloads] == list(BUILT_IN)
    ids = [p.id for w in workloads for p in w.prompts]
    assert len(set(ids)) == len(ids)
    for workload in workloads:
        assert len(workload.prompts) >= 6, workload.name
        assert all(p.messages[-1][0] == "user" for p in workload.prompts)
    depths = [p.depth for w in workloads for p in w.prompts if w.name == "long-context"]
    assert depths == [4096] * 3 + [16384] * 3


def read_one(tmp_path, name, content):
    file = tmp_path / name
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    (workload,) = load((str(file),))
    return [(p.id, p.messages) for p in workload.prompts]


def test_openais_messages_are_read_as_they_are_recorded(tmp_path):
    """Parts of text, the newer name of the system role, a batch's request, and an answer at the
    end, which is what is generated anew."""
    question = {"role": "user", "content": [{"type": "text", "text": "a"}], "name": "x"}
    answer = {"role": "assistant", "content": "b", "refusal": None}
    lines = [
        {"messages": [{"role": "developer", "content": "Be brief."}, question, answer]},
        {"custom_id": "req-1", "method": "POST", "body": {"model": "m", "messages": [question]}},
        {"turns": ["one", "two"], "category": "writing"},
    ]
    found = read_one(tmp_path, "api.jsonl", "\n".join(map(json.dumps, lines)))
    assert found == [
        ("line-1", (("system", "Be brief."), ("user", "a"))),
        ("req-1", (("user", "a"),)),
        ("line-3", (("user", "one"),)),
    ]


def test_of_a_saved_conversation_every_question_is_asked_with_what_came_before_it(tmp_path):
    turns = ("one", "1", "two", "2")
    roles = ("user", "assistant") * 2
    talk = Talk("T", "demo", tuple(map(Turn, roles, turns)), "Be kind.")
    found = read_one(tmp_path, "talk.json", to_json(talk))
    kind = ("system", "Be kind.")
    assert found == [
        ("turn-1", (kind, ("user", "one"))),
        ("turn-2", (kind, ("user", "one"), ("assistant", "1"), ("user", "two"))),
    ]


def test_a_json_file_is_a_list_of_prompts_or_one_conversation(tmp_path):
    message = {"role": "user", "content": "a"}
    for content, expected in (
        (["a", {"prompt": "b", "id": "x"}], [("line-1", "a"), ("x", "b")]),
        ([message], [("turn-1", "a")]),
        ({"prompt": "a"}, [("line-1", "a")]),
    ):
        found = read_one(tmp_path, "own.json", content)
        assert [(name, messages[-1][1]) for name, messages in found] == expected


def test_in_a_folder_each_text_is_one_prompt(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "b.txt").write_text("one\ntwo\n")
    (folder / "a.md").write_text("# Three")
    (folder / "c.jsonl").write_text('{"id": "x", "prompt": "four"}')
    (folder / "d.png").write_bytes(b"\x89PNG")
    (workload,) = load((str(folder),))
    assert workload.name == "mine"
    assert [(p.id, p.messages[-1][1]) for p in workload.prompts] == [
        ("a.md", "# Three"),
        ("b.txt", "one\ntwo"),
        ("c/x", "four"),
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no prompts"):
        load((str(tmp_path / "empty"),))


def test_placeholders_of_speed_bench_are_not_measured_as_prompts(tmp_path):
    text = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
    with pytest.raises(UsageError, match="line 1: this is SPEED-Bench's placeholder"):
        read_one(tmp_path, "speed.jsonl", json.dumps({"turns": [text]}))


def rows_of_speed_bench(count: int = 80) -> list[dict[str, object]]:
    """Three categories as the dataset has them, the last under another licence."""
    placeholder = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
    return [
        {
            "question_id": f"{category}-{i}",
            "category": category,
            "sub_category": None,
            "turns": [placeholder if category == "rag" else f"{category} {i}?", "And then?"],
            "multiturn": True,
        }
        for category in ("coding", "low_entropy", "rag")
        for i in range(count)
    ]


def test_speed_bench_comes_from_the_hub_some_prompts_of_each_category(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    hub.datasets["nvidia/SPEED-Bench"] = rows_of_speed_bench()
    (workload,) = load(("speed-bench",))
    assert [p.id for p in workload.prompts] == [
        "coding-0",
        "coding-1",
        "low_entropy-0",
        "low_entropy-1",
    ]
    assert workload.prompts[0].messages == (("user", "coding 0?"),)
    asked = len(hub.requests)
    assert [r.path for r in hub.requests].count("/rows") == 3  # 240 rows, 100 an answer
    (workload,) = load(("SPEED-Bench:low-entropy",))
    assert (workload.name, len(workload.prompts)) == ("speed-bench:low-entropy", 16)
    assert len(hub.requests) == asked, "they are kept"
    with pytest.raises(UsageError, match="no category 'rag' whose prompts are published"):
        load(("speed-bench:rag",))


def test_speed_bench_without_its_prompts_or_the_hub(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    hub.datasets["nvidia/SPEED-Bench"] = [{"question_id": "x", "nothing": 1}]
    with pytest.raises(HubError, match="not what they were"):
        load(("speed-bench",))
    hub.datasets["nvidia/SPEED-Bench"] = rows_of_speed_bench()[-2:]
    with pytest.raises(UsageError, match="placeholders in place of its prompts"):
        load(("speed-bench",))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    hub.faults.append(Fault(path="/rows", status=404))
    with pytest.raises(HubError):
        load(("speed-bench",))
    assert not list((tmp_path / "other").rglob("*.json")), "nothing half read is kept"


def test_where_nothing_can_be_kept_speed_bench_is_read_all_the_same(hub, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file is no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    hub.datasets["nvidia/SPEED-Bench"] = rows_of_speed_bench(2)
    (workload,) = load(("speed-bench",))
    assert len(workload.prompts) == 4


# ---- depth ------------------------------------------------------------------------------------


def test_each_depth_is_a_workload_of_its_own():
    found = at_depths(load(("chat8",)), (0, 4096, 1000))
    assert [w.name for w in found] == ["chat8", "chat8@4k", "chat8@1000"]
    assert [{p.depth for p in w.prompts} for w in found] == [{0}, {4096}, {1000}]
    assert found[1].prompts[0].workload == "chat8@4k"


@pytest.mark.parametrize("a_token", [1, 3.7, 5.2])
def test_a_prompt_is_filled_up_to_its_depth_and_never_beyond(a_token):
    def tokenize(prompt):
        return range(20 + round(sum(len(c) for _, c in prompt.messages) / a_token))

    asked = Prompt("p", "w", (("system", "s"), ("user", "Why?")), 4096)
    found = filled(asked, tokenize)
    assert 0.98 * 4096 <= len(tokenize(found)) <= 4096
    assert found.messages[0] == ("system", "s")
    assert found.messages[-1][1].endswith("\n\n---\n\nWhy?")
    assert found.messages[-1][1].startswith("Query 1. Do not Bodies act upon Light")


def test_a_depth_that_cannot_be_had_is_refused():
    def tokenize(prompt):
        return range(sum(len(c) for _, c in prompt.messages) // 4)

    def asked(depth):
        return Prompt("p", "w", (("user", "Why? " * 100),), depth)

    with pytest.raises(UsageError, match="of 1000k tokens cannot be had: the text"):
        filled(asked(1024000), tokenize)
    with pytest.raises(UsageError, match="of 100 tokens cannot be had: p alone has 125"):
        filled(asked(100), tokenize)


# ---- what is refused --------------------------------------------------------------------------


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
        ("x.csv", "a,b", "none of .txt"),
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
        (("some/folder",), None, "some/folder does not exist"),
        (("folder/",), None, "folder does not exist"),
        (("chat8",), "hello", "exclude each other"),
        ((), " \n", "empty"),
    ],
)
def test_words_that_name_no_workload(names, prompt, said):
    with pytest.raises(UsageError) as error:
        load(names, prompt)
    assert said in str(error.value)
