"""A drafter whose proposals are written by the test: the loop's behaviour without luck."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.drafters.base import Draft, Needs, Sampling

Tree = list[tuple[int, int]]  # (token, parent), parents first


class ScriptedDrafter:
    """Asks ``script`` for a chain (token ids) or a tree of (token, parent) pairs at every step.

    ``script`` gets the committed ids and the depth limit. The branches of a tree are cut at the
    limit by the script itself.
    """

    def __init__(
        self,
        script: Callable[[list[int], int], Sequence[int] | Tree],
        *,
        nodes: int,
        sequences: int = 1,
    ) -> None:
        self.needs = Needs(outputs=nodes + 1, sequences=sequences, rollback=True)
        self._script = script
        self._draft = Draft(nodes)

    def reusable(self, tokens: Sequence[int], keep: int) -> int:
        return keep

    def begin(self, tokens: Sequence[int], keep: int, sampler: Sampling) -> None:
        pass

    def process(self, tokens: Sequence[int], position: int) -> None:
        pass

    def draft(self, tokens: list[int], limit: int) -> Draft:
        proposal = list(self._script(list(tokens), limit))
        draft = self._draft
        draft.n = len(proposal)
        draft.chain = not proposal or isinstance(proposal[0], int)
        for i, node in enumerate(proposal):
            token, parent = (node, i - 1) if isinstance(node, int) else node
            draft.tokens[i], draft.parents[i] = token, parent
        return draft

    def accept(self, tokens: list[int], rows: Sequence[int]) -> None:
        pass

    def reset(self) -> None:
        pass

    def close(self) -> None:
        pass
