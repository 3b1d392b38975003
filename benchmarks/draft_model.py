"""Draft-model speculation: localspec's engine against llama-server's ``draft-simple``.

Same target, same draft, same draft length, greedy, no early stop (p_min 0): once with the small
demo draft and once with the target as its own draft.

Needs the peer (build_peer.sh). ``python benchmarks/draft_model.py --pairs 30 --json FILE``
"""

from __future__ import annotations

import sys

import demo
from pairs import arguments, begin, report
from peer import engine_against_server

from localspec.records import DrafterSettings


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--n-max", type=int, default=4, help="tokens drafted a step")
    options = begin(parser)
    results = []
    for name, draft, at_least in (
        ("the demo draft", demo.draft(), 1.00),
        ("the target as its own draft", demo.model(), 1.20),
    ):
        drafter = DrafterSettings("draft-model", name, str(draft), n_max=options.n_max, p_min=0.0)
        results.append(
            engine_against_server(
                options,
                f"draft-model / draft-simple, {name}",
                drafter,
                at_least=at_least,
                draft=draft,
            )
        )
    return report("draft_model", options, results)


if __name__ == "__main__":
    sys.exit(main())
