"""Accept lengths of the demo drafters beside those that their card states (assets/demo/README.md).

The card's own prompts (card_prompts.json) and settings: greedy, p_min 0, 128 tokens, flash
attention on, the template's default system prompt; chat / code, pooled. The card was measured with
llama.cpp's llama-speculative-simple.

    python benchmarks/accept_lengths.py [--drafters eagle3 mtp FILE.gguf] [--n-max 3 5]

Each file is measured with its own target: the drafters with ``demo``, ``mtp`` with ``demo-mtp``.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from localspec.catalog import DrafterSpec, Target, resolve_drafters, resolve_target
from localspec.chat.template import ChatTemplate
from localspec.engine.client import Engine
from localspec.machine import describe
from localspec.records import ContextSettings, Counts, SamplerSettings
from localspec.resources import asset

HERE = Path(__file__).parent
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
_PAIR = re.compile(r"(\d\.\d+) / (\d\.\d+)(?: \((\d)\))?")


Stated = dict[tuple[str, int], str]


class Figure(NamedTuple):
    """One figure of the card: ``file`` is its name there."""

    target: Target
    drafter: DrafterSpec
    file: str
    n_max: int


def card() -> Stated:
    """(file, n_max) -> "chat / code", as the card's table has them."""
    found = {}
    for line in asset("demo/README.md").read_text("utf-8").splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if not cells[0].endswith(".gguf"):
            continue
        for n_max, cell in zip((3, 5, 8), cells[3:], strict=True):
            if match := _PAIR.fullmatch(cell):
                found[cells[0], int(match[3] or n_max)] = f"{match[1]} / {match[2]}"
    return found


def figures(names: Sequence[str], lengths: Sequence[int], stated: Stated) -> list[Figure]:
    """What to measure, of each file with the target that the card measured it with: drafters with
    ``demo``; a file that is a target of its own (``demo-mtp``) by its own MTP layers. ``names`` and
    ``lengths`` are those asked for; else the card's."""
    demo, own = resolve_target("demo"), resolve_target("demo-mtp")
    found = []
    for name in names or dict.fromkeys(file for file, _ in stated):
        if name == own.path.name:
            name = "mtp"
        target = own if name == "mtp" else demo
        file = asset(f"demo/{name}") if name in {f for f, _ in stated} else name
        for drafter in resolve_drafters(target, [str(file)]):
            card_name = (drafter.path or target.path).name
            for n_max in lengths or [n for f, n in stated if f == card_name]:
                found.append(Figure(target, drafter, card_name, n_max))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--drafters", nargs="*", default=[], help="default: every file of the card")
    parser.add_argument("--n-max", type=int, nargs="*", default=[])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--most", type=int, default=99, help="prompts of each kind")
    options = parser.parse_args()
    stated = card()
    prompts: dict[str, list[str]] = json.loads((HERE / "card_prompts.json").read_text("utf-8"))
    print(f"accept lengths, chat / code, on {describe()['cpu']}")
    wanted = figures(options.drafters, options.n_max, stated)
    for target in {f.target.name: f.target for f in wanted}.values():
        with Engine() as engine:
            engine.load(target.path)
            template = ChatTemplate.from_model(engine.model)
            rendered = {
                kind: [
                    engine.tokenize(*template.render(_messages(text)).segments)
                    for text in texts[: options.most]
                ]
                for kind, texts in prompts.items()
            }
            for figure in (f for f in wanted if f.target.name == target.name):
                _measure(engine, figure, rendered, options, stated)


def _messages(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]


def _measure(
    engine: Engine,
    figure: Figure,
    rendered: dict[str, list[tuple[int, ...]]],
    options: argparse.Namespace,
    stated: Stated,
) -> None:
    settings = figure.drafter.settings(n_max=figure.n_max, p_min=0.0)
    engine.open("s", settings, ContextSettings(1024, threads=options.threads, flash_attn="on"))
    lengths = []
    for ids in rendered.values():
        total = Counts()
        for prompt in ids:
            total += engine.generate(
                "s", prompt, sampler=SamplerSettings(), max_tokens=options.tokens
            ).counts
        lengths.append(f"{total.accept_length or 0:.2f}")
    of_card = stated.get((figure.file, figure.n_max), "-")
    print(
        f"  {figure.target.name:<8} {figure.file:<36} n_max {figure.n_max}: "
        f" {' / '.join(lengths)}  (card {of_card})",
        flush=True,
    )


if __name__ == "__main__":
    main()
