"""Memory: the engine process with drafter none against a bare script of the same modules (Linux).

The peak resident memory (VmHWM) of the engine after generating with the demo model, against that of
a process that imports the same modules and decodes the same ids in a context of the same settings.

``python benchmarks/memory.py --pairs 10 --json FILE``
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import bare
import demo
from pairs import Result, alternate, arguments, begin, report
from peer import GREEDY

from localspec.engine.client import Engine
from localspec.records import ContextSettings, DrafterSettings


def against_bare_script(options: argparse.Namespace) -> Result:
    wanted: dict[str, object] = {"model": str(demo.model())}

    def ours(_: int) -> float:
        with Engine() as engine:
            engine.load(demo.model())
            context = ContextSettings(options.ctx, options.threads)
            wanted["settings"] = engine.open("plain", DrafterSettings(), context).settings
            wanted["prompt"] = prompt = demo.prompt_ids(engine.model, engine.tokenize)[0]
            made = engine.generate("plain", prompt, sampler=GREEDY, max_tokens=options.tokens)
            wanted["generated"] = made.tokens
            return bare.peak_memory(engine.pid) / 1024

    def theirs(_: int) -> float:
        script = Path(bare.__file__)
        answer = subprocess.run(
            [sys.executable, str(script)],
            input=json.dumps(wanted),
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        )
        return int(answer.stdout) / 1024

    ours(0)  # fills ``wanted``
    figures = alternate(options.pairs, ours, theirs)
    return Result(
        "engine / bare script",
        "MiB VmHWM",
        *figures,
        at_most=1.05,
        notes={"settings": wanted["settings"]},
    )


def main() -> int:
    options = begin(arguments(__doc__, pairs=10, tokens=64))
    return report("memory", options, [against_bare_script(options)])


if __name__ == "__main__":
    sys.exit(main())
