"""What travels: a run with the scores of the same run made again."""

from __future__ import annotations

from dataclasses import replace

from localspec.records import Counts, Generation, Scores, Step, Times


def step(tokens: int, accepted: int, drafted: int) -> Step:
    return Step(tokens, drafted, accepted, drafted, 1, 0.0, 0.0, 0.0, 0.0, 0.0)


FIRST = Generation(
    "",
    (7, 1, 2, 3, 4, 5),
    "eog",
    9,
    0,
    Counts(),
    Times(step=1.0),
    steps=(step(2, 1, 2), step(3, 2, 3)),
    drafts=((1, 8), (3, 4, 6)),
    parents=((), ()),
)
SCORES = (Scores((0.9, 0.1), (0.8, 0.7), (0.9, 0.6)), Scores((0.5, 0.4), (0.3, 0.2), (0.5, 0.4)))
AGAIN = replace(
    FIRST,
    tokens=(7, 1, 2, 3, 4),
    steps=(step(2, 1, 2), step(2, 2, 2)),
    drafts=((1, 8), (3, 4)),  # it had no room for the last token of the draft
    times=Times(step=2.0),
    scores=SCORES,
)


def test_a_run_takes_the_scores_of_its_repetition_and_nothing_else() -> None:
    scored = FIRST.scored_by(AGAIN)
    assert replace(scored, scores=()) == FIRST
    assert scored.scores == (
        SCORES[0],
        Scores((0.5, 0.4, None), (0.3, 0.2, None), (0.5, 0.4, None)),
    )


def test_what_another_text_or_another_step_had_is_no_score_of_this_run() -> None:
    parted = replace(AGAIN, tokens=(7, 1, 9, 3, 4))  # by its second token of the first step
    assert FIRST.scored_by(parted).scores == (
        Scores((0.9, 0.1), (0.8, 0.7), (0.9, None)),
        Scores((None,) * 3, (None,) * 3, (None,) * 3),
    )
    shifted = replace(
        AGAIN, steps=(step(1, 0, 2), step(3, 2, 2)), drafts=((8, 1), (2, 3)), scores=(
            Scores((0.1, None), (0.8, 0.7), (0.9,)), Scores((0.6, 0.5), (0.3, 0.2), (0.6, 0.5, 0.4))
        )
    )  # fmt: skip
    assert FIRST.scored_by(shifted).scores == (
        Scores((None, None), (None, None), (0.9, 0.6)),
        Scores((None,) * 3, (None,) * 3, (0.5, 0.4, None)),
    )
