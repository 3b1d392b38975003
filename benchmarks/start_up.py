"""Start-up: the wall time of ``localspec --version``, median of 20 after one warm-up.

Run it with the Python of the environment that localspec is installed in:
``python benchmarks/start_up.py --runs 20 --json FILE``
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from pairs import begin, machine, median_interval

AT_MOST = 0.25


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = begin(parser)
    # The console script beside this Python where there is one: that is what a person types.
    script = shutil.which("localspec", path=str(Path(sys.executable).parent))
    command = [script] if script else [sys.executable, "-m", "localspec"]
    command.append("--version")

    seconds = []
    for _ in range(options.runs + 1):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - began)
    seconds = seconds[1:]  # the first compiles modules and fills the page cache
    interval = median_interval(seconds)
    kept = median(seconds) < AT_MOST
    print(
        f"{' '.join(command)}: median {median(seconds):.3f} s of {len(seconds)} "
        f"({min(seconds):.3f} to {max(seconds):.3f}); wanted < {AT_MOST} s: "
        f"{'kept' if kept else 'MISSED'}"
    )
    if options.json:
        document = {
            "script": "start_up",
            "machine": machine(),
            "command": command,
            "seconds": seconds,
            "median": median(seconds),
            "interval": interval,
            "at_most": AT_MOST,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
