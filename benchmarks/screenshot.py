"""The picture in the README: the output of a real `localspec bench`, as SVG.

python benchmarks/screenshot.py            bench --model demo, 110 columns
python benchmarks/screenshot.py ARGS...    any other arguments of localspec
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 118
OUT = Path(__file__).parents[1] / "assets" / "screenshots" / "bench.svg"


def main() -> None:
    words = sys.argv[1:] or ["bench", "--model", "demo"]
    shown = subprocess.run(
        [sys.executable, "-m", "localspec", *words],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)},
    ).stdout
    print(shown)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ localspec " + " ".join(words), style="bold"))
    console.print(Text.from_ansi(shown))
    OUT.write_text(console.export_svg(title="localspec"), "utf-8")


if __name__ == "__main__":
    main()
