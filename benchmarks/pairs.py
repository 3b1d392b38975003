"""Paired measurements: two ways of doing the same work, alternating in time on one machine.

A pair is one run of each, one after the other, on the same prompt; the order is swapped every other
pair, so that drift and other load hit both alike. Reported is the median of the paired ratios with
its distribution-free 95 % interval (order statistics of the binomial distribution; scipy's
``quantile_test``), which needs at least 6 pairs.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from localspec.machine import default_threads, describe, warnings

LEVEL = 0.95


@dataclass(frozen=True)
class Result:
    """``ratios[i]`` is ours / theirs of pair i; ``at_least`` / ``at_most`` is the promise."""

    name: str
    unit: str
    ours: list[float]
    theirs: list[float]
    at_least: float | None = None
    at_most: float | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.ours, self.theirs, strict=True)]

    @property
    def interval(self) -> tuple[float, float] | None:
        return median_interval(self.ratios)

    @property
    def verdict(self) -> str:
        """A promise is missed only when the whole interval lies on the wrong side of it."""
        if self.interval is None:
            return "too few pairs to judge"
        low, high = self.interval
        missed = (self.at_least is not None and high < self.at_least) or (
            self.at_most is not None and low > self.at_most
        )
        return "MISSED" if missed else "kept"

    def line(self) -> str:
        interval = self.interval
        around = f"95 % {interval[0]:.4f} to {interval[1]:.4f}" if interval else "no interval"
        text = (
            f"{self.name}: median ratio {median(self.ratios):.4f} ({around}), "
            f"{len(self.ratios)} pairs; ours {median(self.ours):.2f}, "
            f"theirs {median(self.theirs):.2f} {self.unit}"
        )
        if self.at_least is not None:
            text += f"; wanted >= {self.at_least:g}: {self.verdict}"
        if self.at_most is not None:
            text += f"; wanted <= {self.at_most:g}: {self.verdict}"
        return text

    def json(self) -> dict[str, Any]:
        judged = self.at_least is not None or self.at_most is not None
        return asdict(self) | {
            "ratios": self.ratios,
            "median_ratio": median(self.ratios),
            "interval": self.interval,
            "verdict": self.verdict if judged else None,
        }


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the median; None where there are too few values to have one."""
    from scipy.stats import quantile_test

    found = quantile_test(values, p=0.5).confidence_interval(LEVEL)
    low, high = float(found.low), float(found.high)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def alternate(
    pairs: int, ours: Callable[[int], float], theirs: Callable[[int], float], *, settle: float = 0.1
) -> tuple[list[float], list[float]]:
    """Run both sides ``pairs`` times on item i = 0, 1, ...; each is given i and returns its figure.

    ``settle`` seconds pass before each run: OpenMP's threads spin for some milliseconds after a
    decode, and would take the other side's cores.
    """
    figures: tuple[list[float], list[float]] = ([], [])
    for i in range(pairs):
        order = (0, 1) if i % 2 == 0 else (1, 0)
        for side in order:
            time.sleep(settle)
            figures[side].append((ours, theirs)[side](i))
    return figures


def arguments(
    description: str | None, *, pairs: int = 30, tokens: int = 128
) -> argparse.ArgumentParser:
    """The options that the paired scripts share."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n\n")[0])
    parser.add_argument("--pairs", type=int, default=pairs)
    parser.add_argument("--tokens", type=int, default=tokens, help="tokens generated a run")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--ctx", type=int, default=1024)
    parser.add_argument("--peer", type=Path, default=Path("/tmp/peer/bin"), help="its programs")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser


def begin(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options, after saying on stderr what on this machine would spoil the measurement."""
    options = parser.parse_args()
    for warning in warnings():
        print(f"warning: {warning}", file=sys.stderr)
    return options


def machine() -> dict[str, Any]:
    """Where and when this was measured."""
    return describe() | {
        "llama_cpp_python": importlib.metadata.version("llama-cpp-python"),
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def report(
    script: str, settings: argparse.Namespace, results: Sequence[Result], **further: Any
) -> int:
    """Print what was measured, write ``--json``; the exit status: 1 where a promise was missed."""
    where = machine()
    load = where["load_average"]
    print(
        f"{script} on {where['cpu']}, {where['cores']} cores, {where['os']}, "
        f"Python {where['python']}, llama-cpp-python {where['llama_cpp_python']}"
        + (f", load {load[0]:.2f} at the end" if load else "")
    )
    for result in results:
        print(result.line())
        for key, value in result.notes.items():
            print(f"    {key}: {value}")
    for key, value in further.items():
        print(f"{key}: {value}")
    if settings.json:
        document = {
            "script": script,
            "machine": where,
            "settings": {
                k: str(v) if isinstance(v, Path) else v for k, v in vars(settings).items()
            },
            "results": [r.json() for r in results],
            **further,
        }
        settings.json.write_text(json.dumps(document, indent=1) + "\n")
    return int(any(r.verdict == "MISSED" for r in results))
