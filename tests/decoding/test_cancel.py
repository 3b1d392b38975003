"""A cancel may fall into any native decode: the drafter's, a verification, a replay after it, what
the drafter takes in. Whichever it is, the answer ends there and the conversation goes on right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from drafters.reading import Lab, opened
from families import MIXED, NAMES, Case, every_family

from localspec.decoding.loop import Listener, Request, Session
from localspec.llama import Context
from localspec.llama.context import Batch
from localspec.records import READER_BATCH, Generation, SamplerSettings, Step

PROMPT = [0, *(4 + i * 3 % 8 for i in range(37)), 5, 6, 5]  # two chunks, and what n-grams find
TOKENS = 12


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    return every_family(tmp_path_factory.mktemp("families"))


@pytest.fixture
def lab() -> Iterator[Lab]:
    with opened() as made:
        yield made


def run(session: Session, prompt: list[int], n: int = TOKENS, *, reuse: bool = False) -> Generation:
    sampler = SamplerSettings(temperature=0.8, seed=5)
    request = Request(prompt, sampler, n, ignore_eos=True, reuse=reuse, record=True)
    return session.generate(request, Listener())


class Cut:
    """Native decodes of a session, each given the context that it ran on. At the ``at``-th the flag
    of a person's cancel is raised, and llama.cpp itself stops."""

    def __init__(self, session: Session, patch: pytest.MonkeyPatch, at: int | None = None) -> None:
        self.contexts: list[Context] = []
        decode, encode = Context.decode, Context.encode

        def count(context: Context) -> bool:
            if len(self.contexts) == at:
                session.abort.set()
            self.contexts.append(context)
            return len(self.contexts) == (at or 0) + 1

        def counted_decode(context: Context, batch: Batch) -> None:
            last = count(context) and at is not None
            decode(context, batch)
            assert not last, "the flag was raised, but the decode went on"

        def counted_encode(context: Context, batch: Batch) -> None:
            last = count(context) and at is not None
            encode(context, batch)
            assert not last, "the flag was raised, but the encoder went on"

        patch.setattr(Context, "decode", counted_decode)
        patch.setattr(Context, "encode", counted_encode)


def check(session: Session, other: Session, prompt: list[int], whole: Generation, at: int) -> str:
    """Cut the run at its ``at``-th decode, then go on with the conversation; returns the stop."""
    with pytest.MonkeyPatch.context() as patch:
        Cut(session, patch, at)
        stopped = run(session, prompt, len(whole.tokens))
    session.abort.clear()
    session.lengths = None
    assert stopped.tokens == whole.tokens[: len(stopped.tokens)]
    assert stopped.counts.decode_tokens == max(len(stopped.tokens) - 1, 0)
    assert (stopped.stop == "cancelled") or stopped.tokens == whole.tokens
    follow = [*prompt, *stopped.tokens, 9, 8]
    reused = run(session, follow, reuse=True)
    fresh = run(other, follow)
    assert (reused.tokens, reused.drafts) == (fresh.tokens, fresh.drafts)
    return stopped.stop


@pytest.mark.parametrize("name", [*NAMES, *MIXED])
def test_after_a_cancel_in_any_decode_the_next_answer_is_a_fresh_sessions(
    lab: Lab, cases: dict[str, Case], name: str
) -> None:
    case = cases[name]
    session, other = (lab.session(case.target, case.drafter) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        cut = Cut(session, patch)
        whole = run(session, PROMPT)
    every = 4 if "hybrid" in name else 1  # a larger model
    cuts = range(0, len(cut.contexts), every)
    stops = [check(session, other, PROMPT, whole, at) for at in cuts]
    # a cancel in what follows the last token comes too late
    assert stops.count("cancelled") >= len(stops) - 1


class Silence:
    """Lengths that let no draft come for long, so that a drafter takes in text it never drafted."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def begin(self) -> None:
        pass

    def limit(self, most: int) -> int:
        self._left -= 1
        return 0 if self._left >= 0 else most

    def observe(self, step: Step, accepted: Sequence[int]) -> None:
        pass


@pytest.mark.parametrize("name", ["eagle3", "dflash", "dspark", "mtp", "mtp chained"])
def test_a_cancel_while_kept_tokens_are_taken_in(
    lab: Lab, cases: dict[str, Case], name: str
) -> None:
    """Where no draft came for long, the drafter decodes after a verification."""
    case = cases[name]
    session, other = (lab.session(case.target, case.drafter) for _ in range(2))
    accept, taken_in = session.drafter.accept, []
    session.lengths = Silence(READER_BATCH + 6)
    with pytest.MonkeyPatch.context() as patch:
        cut = Cut(session, patch)

        def watched(tokens: list[int], rows: Sequence[int]) -> None:
            start = len(cut.contexts)
            accept(tokens, rows)
            taken_in.extend(range(start, len(cut.contexts)))

        patch.setattr(session.drafter, "accept", watched)
        whole = run(session, PROMPT, READER_BATCH + 10)
    assert taken_in
    for at in taken_in:
        session.lengths = Silence(READER_BATCH + 6)
        assert check(session, other, PROMPT, whole, at) == "cancelled"
