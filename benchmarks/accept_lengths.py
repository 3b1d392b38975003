"""Accept lengths of the demo drafters beside those that their card states (assets/demo/README.md).

The card's own prompts (card_prompts.json) and settings: greedy, p_min 0, 128 tokens, flash
attention on, the template's default system prompt; chat / code, pooled. The card was measured with
llama.cpp's llama-speculative-simple.

    python benchmarks/accept_lengths.py [--drafters eagle3 dspark FILE.gguf] [--n-max 3 5]
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path

import demo

from localspec.catalog import DrafterSpec, resolve_drafters, resolve_target
from localspec.chat.template import ChatTemplate
from localspec.engine.client import Engine
from localspec.machine import describe
from localspec.records import ContextSettings, Counts, DrafterSettings, SamplerSettings
from localspec.resources import asset

HERE = Path(__file__).parent
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
_PAIR = re.compile(r"(\d\.\d+) / (\d\.\d+)(?: \((\d)\))?")


def card() -> dict[tuple[str, int], str]:
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
    target = resolve_target("demo")
    files = dict.fromkeys(str(asset(f"demo/{name}")) for name, _ in stated)
    drafters = resolve_drafters(target, options.drafters or list(files))
    print(f"accept lengths, chat / code, on {describe()['cpu']}")
    with Engine() as engine:
        engine.load(demo.model())
        template = ChatTemplate.from_model(engine.model)
        rendered = {
            kind: [
                engine.tokenize(
                    *template.render(
                        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
                    ).segments
                )
                for text in texts[: options.most]
            ]
            for kind, texts in prompts.items()
        }
        for drafter, n_max in _wanted(drafters, options.n_max, stated):
            assert drafter.path is not None
            settings = DrafterSettings(drafter.method, drafter.name, str(drafter.path), n_max=n_max)
            engine.open(
                "s", settings, ContextSettings(1024, threads=options.threads, flash_attn="on")
            )
            lengths = []
            for ids in rendered.values():
                total = Counts()
                for prompt in ids:
                    total += engine.generate(
                        "s", prompt, sampler=SamplerSettings(), max_tokens=options.tokens
                    ).counts
                lengths.append(f"{total.accept_length or 0:.2f}")
            of_card = stated.get((drafter.path.name, n_max), "-")
            print(
                f"  {drafter.path.name:<36} n_max {n_max}: "
                f" {' / '.join(lengths)}  (card {of_card})",
                flush=True,
            )


def _wanted(
    drafters: Sequence[DrafterSpec], lengths: list[int], stated: dict[tuple[str, int], str]
) -> list[tuple[DrafterSpec, int]]:
    """The lengths that were asked for, else those of the card."""
    return [
        (drafter, n)
        for drafter in drafters
        for n in lengths or [n for name, n in stated if drafter.path and name == drafter.path.name]
    ]


if __name__ == "__main__":
    main()
