"""Records which options llama-server has, for the test of ``localspec export``.

Usage: record_server_flags.py [LLAMA_SERVER]   (built by build_peer.sh; default /tmp/peer/bin)
Writes tests/models/llama_server_flags.json.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

OUT = Path(__file__).parents[1] / "tests" / "models" / "llama_server_flags.json"


def options(text: str) -> list[str]:
    """The long options of a ``--help``, without those that are only listed as removed."""
    found: set[str] = set()
    for block in re.split(r"\n(?=-)", text):
        if "the argument has been removed" not in block and block.startswith("-"):
            head = re.split(r" {2,}(?=[^-\s])", block.split("\n")[0])[0]
            found |= set(re.findall(r"(?<![\w-])--[a-z][\w-]*", head))
    return sorted(found)


def main() -> None:
    server = sys.argv[1] if len(sys.argv) > 1 else "/tmp/peer/bin/llama-server"

    def said(word: str) -> str:
        done = subprocess.run([server, word], capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    version = next(line for line in said("--version").splitlines() if line.startswith("version:"))
    found = {"llama_server": version.removeprefix("version: "), "options": options(said("--help"))}
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"{len(found['options'])} options of {found['llama_server']} in {OUT}")


if __name__ == "__main__":
    main()
