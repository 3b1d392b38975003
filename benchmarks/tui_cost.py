"""What drawing costs: decode tok/s with the Chat screen open and streaming, against headless.

    python benchmarks/tui_cost.py [--pairs 12] [--tokens 128] [--threads 1 2]
    python benchmarks/tui_cost.py --stall

The app runs on a pty of 140x45 and answers the same question again and again; in between a
headless chat session of the same settings answers it. Both have an engine of their own with the
demo model. ``--stall``: the app's process is stopped for 10 s (SIGSTOP) while it answers, and the
whole answer's speed is compared with that of an answer in which it was not.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pairs import Result, alternate, begin, report
from terminal import Terminal

QUESTION = "Write a Python function that returns the second largest number in a list."
AT_LEAST, STALLED_AT_LEAST = 0.97, 0.95
STALL_SECONDS = 10.0
ROOT = Path(__file__).parents[1]


# ---- in the app's process ---------------------------------------------------------------------


def inside(threads: int, orders: int, answers: int) -> None:
    """The app: a line of JSON for each line that comes."""
    gc.disable()  # as localspec.cli does
    from localspec.tui.app import _Started
    from localspec.tui.settings import EngineSettings

    app = _Started()
    app.use(engine=EngineSettings(threads=threads))

    async def go(pilot: Any) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(orders, "rb")
        )
        while await reader.readline():
            os.write(answers, json.dumps(await answer(pilot.app)).encode() + b"\n")
        pilot.app.exit()

    app.run(auto_pilot=go)


async def answer(app: Any) -> dict[str, Any]:
    from localspec.tui.widgets.prompt import Prompt

    screen = app.screen
    screen._last = None
    screen.action_new()
    await asyncio.sleep(0.3)
    screen.query_one(Prompt).write(QUESTION)
    await app._press_keys(["enter"])
    while screen._last is None or screen._asking is not None or app.engine.busy:
        await asyncio.sleep(0.05)
    run = screen._last.run
    return {
        "tps": run.decode_tps,
        "tokens": len(run.tokens),
        "text": run.text,
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "engine_nice": os.getpriority(os.PRIO_PROCESS, app.engine._engine.pid),
    }


# ---- outside ----------------------------------------------------------------------------------


class App:
    """The app on a terminal; ``answer`` asks it the question."""

    def __init__(self, threads: int, settings: dict[str, Any], folder: Path) -> None:
        home = folder / "localspec"
        home.mkdir(parents=True)
        (home / "settings.json").write_text(json.dumps(settings))
        theirs_in, self._orders = os.pipe()
        self._answers, theirs_out = os.pipe()
        words = ["--inside", str(threads), str(theirs_in), str(theirs_out)]
        kinds = ("CONFIG", "DATA", "STATE", "CACHE")
        self.terminal = Terminal(
            [sys.executable, __file__, *words],
            {**os.environ, **{f"XDG_{kind}_HOME": str(folder) for kind in kinds}},
            pass_fds=(theirs_in, theirs_out),
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.last: dict[str, Any] = {}

    def begin(self) -> None:
        os.write(self._orders, b"go\n")

    def end(self) -> float:
        line = b""
        while not line.endswith(b"\n"):
            part = os.read(self._answers, 1 << 16)
            if not part:
                raise SystemExit(f"The app ended: {self.terminal.shown.decode(errors='replace')}")
            line += part
        self.last = json.loads(line)
        return float(self.last["tps"])

    def answer(self) -> float:
        self.begin()
        return self.end()

    def close(self) -> None:
        self.terminal.close()
        os.close(self._orders)
        os.close(self._answers)


def settings_of(options: argparse.Namespace, tokens: int) -> dict[str, Any]:
    return {
        "model": "demo",
        "drafter": options.drafter,
        "max_tokens": tokens,
        "sampler": {"temperature": 0.0},
    }


def against_headless(options: argparse.Namespace, threads: int, folder: Path) -> Result:
    from localspec.chat.session import ChatSession
    from localspec.records import ChatOptions, EngineOptions

    app = App(threads, settings_of(options, options.tokens), folder)
    engine = EngineOptions(threads=threads, sampler={"temperature": 0.0})
    chat = ChatOptions("demo", drafter=options.drafter, max_tokens=options.tokens, engine=engine)
    try:
        with ChatSession(chat, record=True) as session:

            def headless(_i: int) -> float:
                session.begin(thinking=None)
                asked = session.ask(QUESTION)
                for _ in asked:
                    pass
                texts.add(asked.result.text)
                return asked.result.decode_tps or 0.0

            def shown(_i: int) -> float:
                tps = app.answer()
                texts.add(app.last["text"])
                return tps

            texts: set[str] = set()
            session.start()
            alternate(1, shown, headless)  # loads and warms up both
            ours, theirs = alternate(options.pairs, shown, headless, settle=0.3)
    finally:
        app.close()
    if len(texts) != 1:
        raise SystemExit("The app and the headless chat gave different texts.")
    cores = len(os.sched_getaffinity(0))
    where = {cores: "all cores", cores - 1: "cores - 1"}.get(threads, f"{threads} threads")
    return Result(
        f"decode with the Chat screen streaming / headless, {threads} threads ({where})",
        "tok/s",
        ours,
        theirs,
        at_least=AT_LEAST if threads < cores else None,
        notes={
            "niceness": f"drawing {app.last['nice']}, engine {app.last['engine_nice']}",
            "tokens an answer": app.last["tokens"],
        },
    )


def stalled(options: argparse.Namespace, threads: int, folder: Path) -> Result:
    app = App(threads, settings_of(options, options.stall_tokens), folder)
    stop: Callable[[int], None] = app.terminal.process.send_signal

    def with_stall(_i: int) -> float:
        app.begin()
        time.sleep(2)  # it answers now
        stop(signal.SIGSTOP)
        time.sleep(STALL_SECONDS)
        stop(signal.SIGCONT)
        return app.end()

    try:
        first = app.answer()
        seconds = app.last["tokens"] / first
        if seconds < STALL_SECONDS / 2:
            raise SystemExit(f"The answer takes {seconds:.1f} s: too short to stop in its middle.")
        ours, theirs = alternate(options.pairs, with_stall, lambda _i: app.answer(), settle=0.3)
    finally:
        app.close()
    return Result(
        f"decode with the app stopped for {STALL_SECONDS:.0f} s / not stopped, {threads} threads",
        "tok/s",
        ours,
        theirs,
        at_least=STALLED_AT_LEAST,
        notes={"tokens an answer": app.last["tokens"], "seconds of decoding": f"{seconds:.1f}"},
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=0, help="0: 12, with --stall 6")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--stall-tokens", type=int, default=600)
    parser.add_argument("--threads", type=int, nargs="*")
    parser.add_argument("--drafter", default="draft-model")
    parser.add_argument("--stall", action="store_true")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--inside", type=int, nargs=3, help=argparse.SUPPRESS)
    if "--inside" in sys.argv:
        inside(*parser.parse_args().inside)
        return 0
    options = begin(parser)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    cores = len(os.sched_getaffinity(0))
    options.pairs = options.pairs or (6 if options.stall else 12)
    measure = stalled if options.stall else against_headless
    threads = options.threads or ([max(cores - 1, 1)] if options.stall else [cores, cores - 1])
    results = []
    with tempfile.TemporaryDirectory() as name:
        for n in threads:
            results.append(measure(options, max(n, 1), Path(name, str(n))))
    return report("tui_cost", options, results)


if __name__ == "__main__":
    sys.exit(main())
