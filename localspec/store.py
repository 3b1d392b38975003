"""What is kept from one start to the next: conversations, questions, baselines, benchmarks.

One SQLite file among the user's data. Every call opens a connection of its own: it may come from
any thread, and waits for another process's. Not in WAL mode: whoever enters or leaves that while
another does is told "database is locked" at once (https://sqlite.org/wal.html, section 9).
``MIGRATIONS`` grow at their end and are never changed.
"""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import platformdirs

from localspec.errors import StoreError, StoreUnusable

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE conversations (
        id INTEGER PRIMARY KEY, title TEXT NOT NULL, model TEXT NOT NULL, system TEXT NOT NULL,
        thinking INTEGER, version INTEGER NOT NULL, created REAL NOT NULL, changed REAL NOT NULL
    );
    CREATE TABLE turns (
        conversation INTEGER NOT NULL REFERENCES conversations ON DELETE CASCADE,
        position INTEGER NOT NULL, role TEXT NOT NULL, content TEXT NOT NULL, facts TEXT NOT NULL,
        PRIMARY KEY (conversation, position)
    ) WITHOUT ROWID;
    CREATE TABLE questions (text TEXT PRIMARY KEY, asked REAL NOT NULL);
    CREATE TABLE baselines (
        setup TEXT PRIMARY KEY, tps REAL NOT NULL, depth INTEGER NOT NULL, tokens INTEGER NOT NULL,
        measured REAL NOT NULL
    );
    """,
    """
    CREATE TABLE benches (
        id INTEGER PRIMARY KEY AUTOINCREMENT, created REAL NOT NULL, target TEXT NOT NULL,
        summary TEXT NOT NULL, result BLOB NOT NULL
    );
    """,
    # a number that was given anew passed for the deleted conversation's: now none ever is
    """
    ALTER TABLE turns RENAME TO old_turns;
    ALTER TABLE conversations RENAME TO old_conversations;
    CREATE TABLE conversations (
        id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, model TEXT NOT NULL,
        system TEXT NOT NULL, thinking INTEGER, version INTEGER NOT NULL, created REAL NOT NULL,
        changed REAL NOT NULL
    );
    CREATE TABLE turns (
        conversation INTEGER NOT NULL REFERENCES conversations ON DELETE CASCADE,
        position INTEGER NOT NULL, role TEXT NOT NULL, content TEXT NOT NULL, facts TEXT NOT NULL,
        PRIMARY KEY (conversation, position)
    ) WITHOUT ROWID;
    INSERT INTO conversations SELECT * FROM old_conversations;
    INSERT INTO turns SELECT * FROM old_turns;
    DROP TABLE old_turns;
    DROP TABLE old_conversations;
    """,
)
"""The schema, version by version (``PRAGMA user_version`` counts those that were run)."""

WAIT_SECONDS = 10.0
"""How long a call waits for another process's."""
KEPT_QUESTIONS = 500


@dataclass(frozen=True, slots=True)
class Turn:
    """A question or an answer. ``facts`` are JSON values about an answer (speed, drafter, ...)."""

    role: Literal["user", "assistant"]
    content: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Talk:
    """A kept conversation. ``id`` None: not kept yet; ``version`` counts its writes; ``named``: its
    title as it was read or written last, since another process may give it another."""

    title: str
    model: str
    turns: tuple[Turn, ...] = ()
    system: str = ""
    thinking: bool | None = None
    id: int | None = None
    version: int = 0
    named: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the list of conversations; ``turns`` counts questions."""

    id: int
    title: str
    model: str
    questions: int
    changed: float


@dataclass(frozen=True, slots=True)
class Baseline:
    """Decode tok/s without a drafter as it was measured, with ``depth`` tokens in the context at
    the end, over ``tokens`` tokens, at ``measured`` (seconds since the epoch)."""

    tps: float
    depth: int
    tokens: int
    measured: float


@dataclass(frozen=True, slots=True)
class KeptBench:
    """A line of the list of benchmarks. ``summary``: what the list shows, JSON values in the words
    of whoever kept it. ``created``: seconds since the epoch."""

    id: int
    created: float
    target: str
    summary: dict[str, Any]


def store_file() -> Path:
    return Path(platformdirs.user_data_dir("localspec", appauthor=False)) / "localspec.db"


class Store:
    """Raises StoreError from any call."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or store_file()

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """One transaction, that no other writer comes between; rolled back by an exception."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)
            with closing(connection):
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    _migrate(connection, self.path)
                    yield connection
                except BaseException:
                    connection.rollback()
                    raise
                connection.commit()
        except (OSError, sqlite3.Error) as error:
            held = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
            raise StoreUnusable(
                f"{self.path}, where results and conversations are kept, cannot be used: {error}.",
                "Another program holds it: end that, and try again."
                if held
                else "Make room or move the file away; a new one is then begun.",
            ) from error

    # ---- conversations ------------------------------------------------------------------------

    def talks(self) -> list[Entry]:
        """All conversations, the one changed last first."""
        with self.connection() as db:
            rows = db.execute(
                "SELECT id, title, model, (SELECT count(*) FROM turns t WHERE t.conversation = c.id"
                " AND t.role = 'user'), changed FROM conversations c ORDER BY changed DESC, id DESC"
            )
            return [Entry(*row) for row in rows]

    def talk(self, identity: int) -> Talk:
        with self.connection() as db:
            row = db.execute(
                "SELECT title, model, system, thinking, version FROM conversations WHERE id = ?",
                (identity,),
            ).fetchone()
            if row is None:
                raise StoreError("This conversation is gone: it was deleted meanwhile.")
            title, model, system, thinking, version = row
            turns = db.execute(
                "SELECT role, content, facts FROM turns WHERE conversation = ? ORDER BY position",
                (identity,),
            )
            return Talk(
                title,
                model,
                tuple(Turn(role, content, json.loads(facts)) for role, content, facts in turns),
                system,
                None if thinking is None else bool(thinking),
                identity,
                version,
                title,
            )

    def save(self, talk: Talk) -> Talk:
        """Keep ``talk`` and return it as it is kept. Where another process has changed or deleted
        it since it was read, it becomes a new conversation: nothing is lost. A title that another
        has given it meanwhile stays."""
        now = time.time()
        facts = (talk.model, talk.system, talk.thinking, now)
        with self.connection() as db:
            changed = db.execute(
                "UPDATE conversations SET title = CASE title WHEN ? THEN ? ELSE title END,"
                " model = ?, system = ?, thinking = ?, changed = ?, version = version + 1"
                " WHERE id = ? AND version = ? RETURNING title",
                (talk.named, talk.title, *facts, talk.id, talk.version),
            ).fetchone()
            if changed is not None:
                (title,) = changed
                identity, version = talk.id, talk.version + 1
                db.execute("DELETE FROM turns WHERE conversation = ?", (identity,))
            else:
                title = talk.title
                if db.execute("SELECT 1 FROM conversations WHERE id = ?", (talk.id,)).fetchone():
                    title = f"{title} (2)"  # beside the other process's
                added = db.execute(
                    "INSERT INTO conversations (title, model, system, thinking, changed, version,"
                    " created) VALUES (?, ?, ?, ?, ?, 1, ?)",
                    (title, *facts, now),
                )
                identity, version = added.lastrowid, 1
            db.executemany(
                "INSERT INTO turns VALUES (?, ?, ?, ?, ?)",
                (
                    (identity, i, turn.role, _encodable(turn.content), json.dumps(turn.facts))
                    for i, turn in enumerate(talk.turns)
                ),
            )
        return replace(talk, title=title, id=identity, version=version, named=title)

    def rename(self, identity: int, title: str) -> None:
        with self.connection() as db:
            db.execute("UPDATE conversations SET title = ? WHERE id = ?", (title, identity))

    def delete(self, identity: int) -> None:
        with self.connection() as db:
            db.execute("DELETE FROM conversations WHERE id = ?", (identity,))

    # ---- questions ----------------------------------------------------------------------------

    def questions(self) -> list[str]:
        """What was asked in any conversation, the oldest first, each once."""
        with self.connection() as db:
            return [text for (text,) in db.execute("SELECT text FROM questions ORDER BY asked")]

    def asked(self, text: str) -> None:
        with self.connection() as db:
            db.execute("REPLACE INTO questions VALUES (?, ?)", (_encodable(text), time.time()))
            db.execute(
                "DELETE FROM questions WHERE text NOT IN"
                " (SELECT text FROM questions ORDER BY asked DESC LIMIT ?)",
                (KEPT_QUESTIONS,),
            )

    # ---- baselines ----------------------------------------------------------------------------

    def baseline(self, setup: str) -> Baseline | None:
        """What was measured last for ``setup``: a model with all settings that its speed hangs on,
        in whatever words the caller has for them."""
        with self.connection() as db:
            row = db.execute(
                "SELECT tps, depth, tokens, measured FROM baselines WHERE setup = ?", (setup,)
            ).fetchone()
        return Baseline(*row) if row else None

    def keep_baseline(self, setup: str, measured: Baseline) -> None:
        with self.connection() as db:
            db.execute(
                "REPLACE INTO baselines VALUES (?, ?, ?, ?, ?)",
                (setup, measured.tps, measured.depth, measured.tokens, measured.measured),
            )

    # ---- benchmarks ---------------------------------------------------------------------------

    def keep_bench(
        self,
        created: float,
        target: str,
        summary: dict[str, Any],
        result: dict[str, Any],
        instead_of: int | None = None,
    ) -> int:
        """Keep a benchmark's whole result; returns its number, which no other will ever have:
        that of the one that it takes the place of, if that is still there."""
        packed = zlib.compress(json.dumps(result, allow_nan=False).encode())
        facts = created, _encodable(target), json.dumps(summary, allow_nan=False), packed
        with self.connection() as db:
            if instead_of is not None:
                changed = db.execute(
                    "UPDATE benches SET created = ?, target = ?, summary = ?, result = ?"
                    " WHERE id = ?",
                    (*facts, instead_of),
                )
                if changed.rowcount:
                    return instead_of
            added = db.execute(
                "INSERT INTO benches (created, target, summary, result) VALUES (?, ?, ?, ?)", facts
            )
            assert added.lastrowid is not None
            return added.lastrowid

    def check_benches(self) -> None:
        """Raise what ``keep_bench`` would, and keep nothing."""
        with self.connection() as db:
            db.execute("SAVEPOINT trial")
            db.execute(
                "INSERT INTO benches (created, target, summary, result) VALUES (0, '', '{}', '')"
            )
            db.execute("ROLLBACK TO trial")
            db.execute("RELEASE trial")

    def benches(self) -> list[KeptBench]:
        """All benchmarks, the latest first."""
        with self.connection() as db:
            rows = db.execute(
                "SELECT id, created, target, summary FROM benches ORDER BY created DESC, id DESC"
            )
            return [KeptBench(i, when, who, json.loads(said)) for i, when, who, said in rows]

    def bench(self, identity: int) -> dict[str, Any] | None:
        """The whole result; None where there is no such number (any more)."""
        with self.connection() as db:
            row = db.execute("SELECT result FROM benches WHERE id = ?", (identity,)).fetchone()
        result: dict[str, Any] | None = json.loads(zlib.decompress(row[0])) if row else None
        return result

    def delete_bench(self, identity: int) -> None:
        with self.connection() as db:
            db.execute("DELETE FROM benches WHERE id = ?", (identity,))


class Changes:
    """Has anybody written to the store since it was asked last, another process too? It keeps a
    connection of its own: ``PRAGMA data_version`` counts, for one connection, the writes of all
    others. For one thread at a time."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or store_file()
        self._connection: sqlite3.Connection | None = None
        self._seen: int | None = None

    def any(self) -> bool:
        """The first time it can be told there may have been; when it cannot, there are none."""
        try:
            if self._connection is None:
                if not self._path.is_file():
                    return False
                self._connection = sqlite3.connect(
                    self._path, timeout=0, isolation_level=None, check_same_thread=False
                )
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return False  # it is being written to: the next time will tell
        seen, self._seen = self._seen, version
        return bool(version != seen)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._seen = None


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} was written by a newer localspec.", "Use that one, or move the file away."
        )
    for statements in MIGRATIONS[version:]:
        for statement in statements.split(";"):  # executescript would commit what is open
            db.execute(statement)
    if version < len(MIGRATIONS):
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _encodable(text: str) -> str:
    """SQLite keeps UTF-8, which half a surrogate pair has no place in."""
    return text.encode("utf-8", "replace").decode()
