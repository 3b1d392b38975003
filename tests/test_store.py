"""The store: what was written is read, migrations keep it, and two processes do not lose a line."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import pytest
from patience import FOREVER

from localspec import store as module
from localspec.errors import StoreError
from localspec.store import Baseline, Store, Talk, Turn

TALK = Talk(
    "Lists",
    "demo",
    (Turn("user", "Sort a list"), Turn("assistant", "sorted(x) 🎉", {"tps": 40.5})),
    system="Be brief.",
    thinking=False,
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data" / "localspec.db")


def test_a_conversation_is_kept_listed_renamed_and_deleted(store: Store) -> None:
    kept = store.save(TALK)
    assert kept.id is not None
    assert store.talk(kept.id) == kept
    more = store.save(replace(kept, turns=(*kept.turns, Turn("user", "Thanks"))))
    assert (more.id, more.version) == (kept.id, 2)
    other = store.save(replace(TALK, title="Other"))
    assert [(e.title, e.questions) for e in store.talks()] == [("Other", 1), ("Lists", 2)]
    store.rename(kept.id, "Sorting")
    assert store.talk(kept.id).title == "Sorting"
    store.delete(kept.id)
    assert [e.id for e in store.talks()] == [other.id]
    with pytest.raises(StoreError, match="deleted"):
        store.talk(kept.id)
    with store.connection() as db:
        assert db.execute("SELECT count(*) FROM turns").fetchone() == (2,)


def test_what_another_process_changed_or_deleted_meanwhile_is_not_overwritten(
    store: Store,
) -> None:
    mine = store.save(TALK)
    theirs = store.save(replace(mine, turns=(*mine.turns, Turn("user", "theirs"))))
    fork = store.save(replace(mine, turns=(*mine.turns, Turn("user", "mine"))))
    assert fork.id != theirs.id
    assert store.talk(theirs.id or 0).turns[-1].content == "theirs"
    assert (fork.title, theirs.title) == ("Lists (2)", "Lists")
    store.delete(fork.id or 0)
    assert store.save(fork).turns[-1].content == "mine"


def test_a_deleted_conversation_s_number_is_never_another_s(store: Store) -> None:
    mine = store.save(TALK)
    store.delete(mine.id or 0)
    theirs = store.save(replace(TALK, title="Precious"))
    more = store.save(replace(mine, turns=(*mine.turns, Turn("user", "mine"))))
    assert len({mine.id, theirs.id, more.id}) == 3
    assert store.talk(theirs.id or 0) == theirs


def test_questions_are_kept_once_each_the_newest_last(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_QUESTIONS", 3)
    for text in ("a", "b", "a", "c", "d", "half \ud800 pair"):
        store.asked(text)
    assert store.questions() == ["c", "d", "half ? pair"]


def test_a_baseline_is_that_of_its_setup(store: Store) -> None:
    assert store.baseline("demo, 2 threads") is None
    store.keep_baseline("demo, 2 threads", Baseline(38.1, 700, 96, 1e9))
    store.keep_baseline("demo, 2 threads", Baseline(39.0, 900, 50, 2e9))
    assert store.baseline("demo, 2 threads") == Baseline(39.0, 900, 50, 2e9)
    assert store.baseline("demo, 1 thread") is None


def test_a_benchmark_is_kept_whole_listed_and_deleted(store: Store) -> None:
    result = {"target": {"name": "modèle"}, "rows": [{"decode_tps": 98.4, "stop": None}] * 200}
    first = store.keep_bench(1e9, "modèle", {"best": None}, result)
    later = store.keep_bench(2e9, "half \ud800 pair", {"best": {"speedup": 1.2}}, {})
    assert store.bench(first) == result
    assert [(b.id, b.created, b.target, b.summary) for b in store.benches()] == [
        (later, 2e9, "half ? pair", {"best": {"speedup": 1.2}}),
        (first, 1e9, "modèle", {"best": None}),
    ]
    store.delete_bench(later)
    assert store.bench(later) is None
    assert store.keep_bench(3e9, "demo", {}, {}) == later + 1


def test_a_benchmark_takes_the_place_of_another_that_is_there(store: Store) -> None:
    first, other = (store.keep_bench(when, "demo", {}, {}) for when in (1e9, 2e9))
    assert store.keep_bench(3e9, "whole", {"all": 1}, {"rows": [1]}, first) == first
    assert [(b.id, b.created, b.target, b.summary) for b in store.benches()] == [
        (first, 3e9, "whole", {"all": 1}),
        (other, 2e9, "demo", {}),
    ]
    assert store.bench(first) == {"rows": [1]}
    store.delete_bench(first)
    assert store.keep_bench(3e9, "whole", {}, {}, first) == other + 1


def test_a_title_given_by_another_process_stays(store: Store) -> None:
    here = store.save(TALK)
    store.rename(here.id or 0, "There")
    again = store.save(replace(here, turns=here.turns * 2))
    assert (again.title, len(store.talk(again.id or 0).turns)) == ("There", 4)
    assert store.save(replace(again, title="Here")).title == "Here"
    assert [entry.title for entry in store.talks()] == ["Here"]


def test_trying_whether_a_benchmark_could_be_kept_leaves_nothing(store: Store) -> None:
    store.check_benches()
    assert store.benches() == []
    assert store.keep_bench(1e9, "demo", {}, {}) == 1
    with sqlite3.connect(store.path) as db:
        db.execute("DROP TABLE benches")
    with pytest.raises(StoreError, match="benches"):
        store.check_benches()


def test_what_the_first_version_kept_is_there_beside_benchmarks(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as old:
        old.setattr(module, "MIGRATIONS", module.MIGRATIONS[:1])
        kept = store.save(TALK)
        with pytest.raises(StoreError, match="benches"):
            store.benches()
    assert store.benches() == []
    assert store.talk(kept.id or 0) == kept
    store.delete(kept.id or 0)
    assert store.save(TALK).id != kept.id
    with store.connection() as db:
        assert db.execute("SELECT count(*) FROM turns").fetchone() == (len(TALK.turns),)
    assert store.keep_bench(1e9, "demo", {}, {}) == 1


WRITER = """\
import sys
from pathlib import Path
from subprocess import PIPE
from localspec import store as module
from localspec.store import Store, Talk, Turn
module.WAIT_SECONDS = 120.0
store = Store(Path(sys.argv[1]))
for i in range(10):
    store.save(Talk(f"{sys.argv[2]} {i}", "demo", (Turn("user", "x"),)))
    store.keep_bench(i, f"{sys.argv[2]} {i}", {}, {"rows": list(range(1000))})
"""


def test_processes_may_write_at_the_same_time(store: Store) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(store.path), name]) for name in "ab"
    ]
    assert [w.wait(FOREVER) for w in writers] == [0, 0]
    names = [f"{n} {i}" for n in "ab" for i in range(10)]
    assert sorted(e.title for e in store.talks()) == names
    assert sorted(b.target for b in store.benches()) == names


BEGINNER = """\
import os, sys
from pathlib import Path
from localspec import store as module
from localspec.store import Store
module.WAIT_SECONDS = 120.0
if hasattr(os, "sched_setaffinity"):  # a test's own core is one: they must really meet
    os.sched_setaffinity(0, range(os.cpu_count()))
for path in sys.stdin:
    Store(Path(path.strip())).asked("Why?")
    print("kept", flush=True)
"""


def test_processes_may_begin_the_store_at_the_same_time(tmp_path: Path) -> None:
    """Each of many new files by three at once: the moments in which it fits badly are short."""
    with ExitStack() as stack:
        beginners = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", BEGINNER], stdin=PIPE, stdout=PIPE, text=True, bufsize=1
                )
            )
            for _ in range(3)
        ]
        for attempt in range(150):
            for beginner in beginners:
                assert beginner.stdin
                beginner.stdin.write(f"{tmp_path / str(attempt) / 'localspec.db'}\n")
            for beginner in beginners:
                assert beginner.stdout
                assert beginner.stdout.readline() == "kept\n"


def test_the_writes_of_another_process_are_noticed_once_and_reads_never(store: Store) -> None:
    changes = module.Changes(store.path)
    assert not changes.any(), "there is nothing yet"
    store.asked("Why?")
    assert changes.any()
    assert not changes.any()
    store.questions()
    store.benches()
    assert not changes.any()
    add = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); "
    add += "db.execute('DELETE FROM questions'); db.commit()"
    subprocess.run([sys.executable, "-c", add, str(store.path)], check=True)
    assert changes.any()
    assert not changes.any()
    changes.close()


def test_a_migration_keeps_what_is_there_and_a_failing_one_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = store.save(TALK)
    first = module.MIGRATIONS
    monkeypatch.setattr(module, "MIGRATIONS", (*first, "CREATE TABLE more (x); nonsense"))
    with pytest.raises(StoreError, match="nonsense"):
        store.talks()
    monkeypatch.setattr(module, "MIGRATIONS", (*first, "CREATE TABLE more (x); SELECT 1"))
    assert store.talk(kept.id or 0) == kept
    monkeypatch.setattr(module, "MIGRATIONS", first)
    with pytest.raises(StoreError, match="newer"):
        store.talks()


def test_what_another_program_holds_is_not_to_be_moved_away(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(TALK)
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.0)
    with store.connection(), pytest.raises(StoreError, match="locked") as told:
        store.talks()
    assert "Another program holds it" in told.value.hint


def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    path = tmp_path / "localspec.db"
    path.write_text("not a database, but long enough to be looked at as if it were one" * 20)
    with pytest.raises(StoreError, match=str(path)):
        Store(path).talks()
    with sqlite3.connect(tmp_path / "other.db"):
        assert Store(tmp_path / "other.db").talks() == []
