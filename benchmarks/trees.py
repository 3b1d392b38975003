"""Accept lengths of draft trees and of the chain they grow from, and what their bookkeeping costs.

Greedy, with the template's default system prompt, over {"chat": [...], "code": [...]} of
card_prompts.json or another such file; two accept lengths a prompt kind, pooled:

- ``own text``: as generated. The kept branch of a tree lies in other cells of the cache, so near
  ties fall otherwise and the text parts from plain greedy decoding; other text, other acceptance.
- ``same text``: the loop is made to emit the plain greedy text, whichever branch holds it. This is
  the figure that compares trees of different sizes, and the one that the card simulates.

    python benchmarks/trees.py --file assets/demo/smollm2-135m-dflash-block8-q4_0.gguf
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence, Set
from pathlib import Path
from statistics import median

import demo
from in_process import host_of

import localspec.llama  # noqa: F401  (before numpy)
from localspec.chat.template import ChatTemplate
from localspec.decoding import loop
from localspec.decoding.acceptance import Acceptance
from localspec.decoding.sampling import Sampler
from localspec.drafters.base import Draft
from localspec.engine import messages as m
from localspec.llama import Rows
from localspec.machine import describe
from localspec.records import ContextSettings, Counts, DrafterSettings, Generation, SamplerSettings

HERE = Path(__file__).parent


def emit(text: Sequence[int]) -> object:
    """An acceptance that emits ``text``, prompt included, as far as the draft holds it."""

    def accept(
        draft: Draft,
        rows: Rows,
        sampler: Sampler,
        tokens: list[int],
        eog: Set[int],
        result: Acceptance,
    ) -> None:
        result.accepted, result.node = 0, -1
        while len(tokens) < len(text):
            token = text[len(tokens)]
            tokens.append(token)
            node = draft.child(result.node, token)
            if node < 0 or token in eog:
                return
            result.node = node
            result.accepted += 1
        tokens.append(sampler.sample(rows[result.node + 1], tokens))

    return accept


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--drafter", default="dflash", choices=["draft-model", "eagle3", "dflash"])
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, default=HERE / "card_prompts.json")
    parser.add_argument("--n-max", type=int, default=7)
    parser.add_argument("--nodes", type=int, nargs="*", default=[0, 8, 16, 64])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--most", type=int, default=99, help="prompts of each kind")
    options = parser.parse_args()
    host, info = host_of(demo.model())
    context = ContextSettings(1024, options.threads, flash_attn="on")
    host.answer(m.Open(2, "plain", DrafterSettings(), context))
    honest = loop.accept
    template = ChatTemplate.from_model(info)

    def generate(session: str, ids: tuple[int, ...]) -> Generation:
        request = loop.Request(ids, SamplerSettings(), options.tokens, record=True)
        return host.session(session).generate(request, loop.Listener())

    prompts = {
        kind: [
            tuple(
                host.model.vocab.tokenize_segments(
                    template.render([{"role": "user", "content": text}]).segments, bos=True
                )
            )
            for text in texts[: options.most]
        ]
        for kind, texts in json.loads(options.prompts.read_text("utf-8")).items()
    }
    plain = {ids: generate("plain", ids).tokens for texts in prompts.values() for ids in texts}
    print(
        f"accept lengths, {' / '.join(prompts)}, on {describe()['cpu']}; "
        f"{options.drafter} {options.file.name}, n_max {options.n_max}",
        flush=True,
    )
    for nodes in options.nodes:
        settings = DrafterSettings(
            options.drafter, options.drafter, str(options.file), n_max=options.n_max, tree=nodes
        )
        host.answer(m.Open(3, "drafts", settings, context))
        lengths: dict[str, list[str]] = {"own text": [], "same text": []}
        overheads = []
        for texts in prompts.values():
            for name, found in lengths.items():
                total = Counts()
                for ids in texts:
                    loop.accept = honest if name == "own text" else emit((*ids, *plain[ids]))
                    run = generate("drafts", ids)
                    total += run.counts
                    overheads += [
                        1e6 * (s.t_accept + s.t_rollback) for s in run.steps if s.nodes >= nodes
                    ]
                found.append(f"{total.accept_length:.2f}")
        loop.accept = honest
        figures = ", ".join(f"{name} {' / '.join(found)}" for name, found in lengths.items())
        print(
            f"  {f'tree of {nodes}' if nodes else 'chain':<11} {figures}; "
            f"accept + rollback {median(overheads):.0f} us a step",
            flush=True,
        )


if __name__ == "__main__":
    main()
