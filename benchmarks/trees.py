"""Accept lengths of draft trees and of the chain they grow from, and what their bookkeeping costs.

Prompts of shared/models/prompts.json's kind: pass a JSON file {"chat": [...], "code": [...]}, or by
default the shipped workloads. Greedy, with the template's default system prompt.

    python benchmarks/trees.py --drafter dflash --file assets/demo/X.gguf [--prompts prompts.json]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median

import demo

from localspec.chat.template import ChatTemplate
from localspec.engine.client import Engine
from localspec.machine import describe
from localspec.records import ContextSettings, Counts, DrafterSettings

ROOT = Path(__file__).parents[1]


def prompts(path: Path | None) -> dict[str, list[str]]:
    if path is not None:
        loaded: dict[str, list[str]] = json.loads(path.read_text("utf-8"))
        return loaded
    found = {}
    for name in ("chat8", "code9"):
        lines = (ROOT / "assets" / "workloads" / f"{name}.jsonl").read_text("utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        found[name] = [r.get("prompt") or r["messages"][-1]["content"] for r in rows]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--drafter", default="dflash", choices=["draft-model", "eagle3", "dflash"])
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--n-max", type=int, default=7)
    parser.add_argument("--nodes", type=int, nargs="*", default=[0, 8, 16, 64])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--most", type=int, default=99, help="prompts of each kind")
    args = parser.parse_args()
    with Engine() as engine:
        engine.load(demo.model())
        template = ChatTemplate.from_model(engine.model)
        context = ContextSettings(n_ctx=1024, threads=args.threads)
        print(f"trees on {describe()['cpu']}; {args.drafter} {args.file.name}, n_max {args.n_max}")
        for nodes in args.nodes:
            settings = DrafterSettings(
                args.drafter, args.drafter, str(args.file), n_max=args.n_max, tree=nodes
            )
            engine.open("s", settings, context)
            lengths, overheads = {}, []
            for kind, texts in prompts(args.prompts).items():
                total = Counts()
                for text in texts[: args.most]:
                    messages = [{"role": "user", "content": text}]
                    ids = engine.tokenize(*template.render(messages).segments)
                    run = engine.generate("s", ids, max_tokens=args.tokens, record=True)
                    total += run.counts
                    overheads += [
                        1e6 * (s.t_accept + s.t_rollback) for s in run.steps if s.nodes == nodes
                    ]
                lengths[kind] = round(total.accept_length or 0, 2)
            cost = f"accept + rollback {median(overheads):.0f} us a step" if overheads else ""
            print(f"  {f'tree of {nodes}' if nodes else 'chain':<11} {lengths}  {cost}", flush=True)


if __name__ == "__main__":
    main()
