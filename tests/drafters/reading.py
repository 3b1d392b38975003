"""A target and a drafter, side by side; the test decides what is accepted, so every pattern of it
can be tried whatever the drafter's quality. And sessions of any family, as the engine makes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import localspec.llama  # noqa: F401  (before numpy)
from localspec.chat.template import ChatTemplate
from localspec.decoding.loop import Listener, Request, Session
from localspec.decoding.sampling import Sampler
from localspec.decoding.target import Target
from localspec.drafters.base import Draft, Drafter, Needs
from localspec.drafters.build import family_of
from localspec.gguf_header import read_header
from localspec.llama import Context, ContextParams, Model, ModelParams
from localspec.llama.context import AbortFlag
from localspec.records import Counts, DrafterSettings, SamplerSettings

CARD_PROMPTS = Path(__file__).parents[2] / "benchmarks" / "card_prompts.json"
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"  # its default
N_CTX, BATCH = 256, 32  # from 64 rows on attention takes another path, with other roundings


class Lent:
    """drafters.build.Resources over one target, as the engine lends them."""

    def __init__(self, lab: Lab, target: Model, drafter: Model | None, **context: Any) -> None:
        self.target, self.drafter = target, drafter
        self._lab = lab
        self.abort = AbortFlag()
        self.params = {"n_ctx": N_CTX, "threads": 1, "batch": BATCH} | context
        self.contexts: list[Context] = []

    def make_target_context(self, needs: Needs) -> Context:
        n_ctx = self.params["n_ctx"] + (needs.outputs if needs.sequences > 1 else 0)
        snapshots = 0 if self.target.can_roll_back else needs.outputs - 1
        options = {
            "outputs": needs.outputs,
            "sequences": needs.sequences,
            "n_ctx": n_ctx,
            "recurrent_snapshots": snapshots,
        }
        return self._make(self.target, options, None)

    @property
    def target_context(self) -> Context:
        return self.contexts[0]

    def drafter_context(
        self,
        model: Model,
        *,
        outputs: int = 1,
        sequences: int = 1,
        batch: int | None = None,
        extra: int = 0,
        mtp: bool = False,
        reads_target: bool = False,
    ) -> Context:
        options = {"outputs": outputs, "sequences": sequences, "mtp": mtp}
        options |= {"n_ctx": self.params["n_ctx"] + extra}
        options |= {"batch": batch} if batch else {}
        return self._make(model, options, self.target_context if reads_target else None)

    def _make(self, model: Model, options: dict[str, Any], other: Context | None) -> Context:
        params = ContextParams(**(self.params | options))
        context = Context(model, params, self.abort, other)
        self.contexts.append(context)
        return context


class Pair:
    """One run of both, from an empty memory."""

    def __init__(self, target: Target, drafter: Drafter) -> None:
        self.target, self.drafter = target, drafter
        self.tokens: list[int] = []

    def close(self) -> None:
        self.drafter.close()
        self.target.close()

    def begin(self, prompt: Sequence[int], keep: int = 0, sampler: Any = None) -> Pair:
        """Evaluate all of ``prompt`` but its last token, which counts as the first emitted one."""
        evaluated = prompt[:-1]
        self.target.context.truncate(keep)
        self.drafter.begin(evaluated, keep, sampler or Sampler(SamplerSettings(), len(evaluated)))
        self.target.prefill(evaluated, keep, self.drafter.process)
        self.tokens = list(prompt)
        return self

    def draft(self, limit: int = 99) -> list[int]:
        found = self.drafter.draft(self.tokens, limit)
        return found.tokens[: found.n].tolist()

    def step(self, accepted: int, wrong: int, limit: int = 99) -> int:
        """Draft, verify, keep ``accepted`` of it at most and ``wrong`` after them."""
        draft = self.drafter.draft(self.tokens, limit)
        return self.verify(draft, min(accepted, draft.n) - 1, wrong)

    def verify(self, draft: Draft, node: int, follow: int) -> int:
        """Verify ``draft``, keep the path to ``node`` and ``follow`` after it."""
        self.target.verify(self.tokens[-1], draft, len(self.tokens) - 1)
        path = []
        at = node
        while at >= 0:
            path.append(int(draft.tokens[at]))
            at = int(draft.parents[at])
        self.tokens += [*reversed(path), follow]
        self.target.keep(draft, node, len(self.tokens) - 1)
        rows = self.target.rows_kept(draft, node, len(path) + 1)
        self.drafter.accept(self.tokens, rows)
        return len(path)


class Lab:
    """Models are loaded once; pairs and sessions are closed at the end of the test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._models: dict[Path, Model] = {}

    def model(self, path: Path) -> Model:
        if path not in self._models:
            load_mtp = read_header(path).mtp_layers > 0
            model = Model(path, ModelParams(load_mtp=load_mtp))
            self._models[path] = self._stack.enter_context(model)
        return self._models[path]

    def lend(self, target: Path, settings: DrafterSettings, **context: Any) -> Lent:
        drafter = self.model(Path(settings.path)) if settings.path else None
        return Lent(self, self.model(target), drafter, **context)

    def pair(self, target: Path, settings: DrafterSettings, **context: Any) -> Pair:
        lent = self.lend(target, settings, **context)
        family = family_of(settings)
        needs = family.needs(settings, lent)
        made = Target(lent.make_target_context(needs), needs)
        pair = Pair(made, family.build(settings, lent, needs))
        self._stack.callback(pair.close)
        return pair

    def branching_pair(self, target: Path, settings: DrafterSettings, nodes: int) -> Pair:
        """One whose target verifies trees, which the test writes."""
        lent = self.lend(target, settings)
        family = family_of(settings)
        needs = replace(family.needs(settings, lent), outputs=nodes + 1, sequences=nodes)
        made = Target(lent.make_target_context(needs), needs)
        pair = Pair(made, family.build(settings, lent, needs))
        self._stack.callback(pair.close)
        return pair

    def session(self, target: Path, settings: DrafterSettings, **context: Any) -> Session:
        lent = self.lend(target, settings, **context)
        family = family_of(settings)
        needs = family.needs(settings, lent)
        context_ = lent.make_target_context(needs)
        session = Session(lent.target, context_, family.build(settings, lent, needs), lent.abort)
        self._stack.callback(session.close)
        return session


def accept_length(
    lab: Lab, demo_model: Path, settings: DrafterSettings, kind: str, *, tokens: int
) -> float:
    """Pooled over the card's prompts of ``kind``, greedy, as the card has it."""
    session = lab.session(demo_model, settings, n_ctx=512, batch=512, threads=2, flash_attn="on")
    template = ChatTemplate.from_model(session.model.info())
    total = Counts()
    for text in json.loads(CARD_PROMPTS.read_text("utf-8"))[kind]:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
        segments = template.render(messages).segments
        prompt = session.model.vocab.tokenize_segments(segments, bos=True)
        request = Request(prompt=prompt, sampler=SamplerSettings(), max_tokens=tokens)
        total += session.generate(request, Listener()).counts
    assert total.accept_length is not None
    return total.accept_length


@contextmanager
def opened() -> Iterator[Lab]:
    with ExitStack() as stack:
        yield Lab(stack)
