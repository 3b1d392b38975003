"""The five rules of speculative decoding, each said only where this run's numbers say it.

The rules are those of "On Speculative Decoders" (199 configurations on one DGX Spark): 1 drafters
trade compute for speed; 2 drafters are brittle; 3 agreement decides, and it varies by workload;
4 the slower the target, the bigger the relative win; 5 speculation cannot rescue a bad
configuration. Each is a sentence with its numbers and the next thing to try.

What a step costs is told in plain steps: a step that takes 1.7 of them pays from an accept length
of 1.7 on.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from localspec.bench.analysis import Figures, Measured
from localspec.bench.audit import Audit
from localspec.bench.sweep import answers

if TYPE_CHECKING:
    from localspec.bench.report import Report

Rule = Literal[1, 2, 3, 4, 5]

MOST = 3
"""Sentences are said, the weightiest first: more is a lecture."""
DEAR = 0.2
"""Plain passes a step from which drafting counts as what costs."""
APART = 1.15
"""By so much the speedups of two workloads must differ, besides their intervals being disjoint."""
AGREES = 1.3
"""Accept length from which a drafter that does not pay is not to blame for it."""
BETTER = 1.05
"""By so much another quantisation must be faster: less is between two days of one machine."""


@dataclass(frozen=True, slots=True)
class Advice:
    """``text`` says what was found, ``next`` what to try."""

    rule: Rule
    text: str
    next: str


@dataclass(frozen=True, slots=True)
class OtherQuant:
    """Another quantisation of the target as an earlier benchmark on this machine measured it."""

    quant: str
    baseline_tps: float


def advice(report: Report) -> tuple[Advice, ...]:
    """What this benchmark teaches, the weightiest first; nothing from a part of the runs."""
    if report.measurement.state == "interrupted":
        return ()
    table, plan = report.table, report.measurement.plan
    found = [*_misfits(report), *_better_base(report), *_other_quants(report)]
    for baseline in plan.baselines:
        members = [
            m
            for m in table.values()
            if not m.candidate.is_baseline and plan.baseline_of(m.candidate) == baseline
        ]
        sound = [
            m
            for m in members
            if m.figures.counts.steps and not _wrong(report.audits, m) and not _misfit(m)
        ]
        model = shlex.quote(report.options.model if report.options else report.target)
        found += [*_workloads(sound, model), *_too_dear(table[baseline.key], sound)]
    once = {(a.rule, a.text): a for a in found}
    return tuple(once.values())[:MOST]


def _misfits(report: Report) -> Iterator[Advice]:
    """Rule 2: the drafter does not fit the target, or the combination is broken."""
    told: set[str] = set()
    for m in report.table.values():
        if m.candidate.is_baseline or m.candidate.drafter.name in told:
            continue
        counts, who = m.figures.counts, _name(m)
        if _wrong(report.audits, m) or _misfit(m):
            told.add(m.candidate.drafter.name)
        if _wrong(report.audits, m):
            yield Advice(
                2,
                f"{who} failed the audit: a combination that changes the output is broken, however "
                "fast it is.",
                "Use another drafter or llama.cpp build until that is explained.",
            )
        elif _misfit(m):
            yield Advice(
                2,
                f"{who}: {counts.acceptance_rate:.1%} of {counts.drafted} drafted tokens were "
                "accepted; drafters fit one target, training and quantisation only.",
                f"Look for one made for this target: localspec models drafters {report.target}.",
            )


def _better_base(report: Report) -> Iterator[Advice]:
    """Rule 5: another base of this table is faster without a drafter than the reference with its
    best."""
    plan = report.measurement.plan
    for answer in answers(plan, report.measurement.judged, report.table):
        if answer.verdict != "faster" or answer.drafting is None:
            continue
        best, base = _name(report.table[answer.drafting.key]), answer.alone.base.name
        yield Advice(
            5,
            f"The baseline on {base} already beats {best}: speculation does not make up for the "
            "slower base.",
            f"Look for a drafter that pays on {base}, if its answers are good enough.",
        )


def _other_quants(report: Report) -> Iterator[Advice]:
    """Rule 5: another quantisation is faster without a drafter than this one with the best."""
    fastest = max((m.figures.decode_tps or 0.0 for m in report.table.values()), default=0.0)
    other = max(report.other_quants, key=lambda o: o.baseline_tps, default=None)
    if other is None or not fastest or other.baseline_tps < BETTER * fastest:
        return
    yield Advice(
        5,
        f"The baseline of {other.quant} ({other.baseline_tps:.1f} tok/s, from the history) already "
        f"beats the best here ({fastest:.1f} tok/s): speculation does not make up for the slower "
        "base.",
        f"Bench the drafters on {other.quant}, if its answers are good enough.",
    )


def _workloads(members: Sequence[Measured], model: str) -> Iterator[Advice]:
    """Rule 3: one drafter gains much more on one workload than on another."""
    widest, said = APART, None
    for m in members:
        parts = [
            (name, part.decode.speedup, part.decode.interval)
            for name, part in m.by_workload.items()
            if part.decode.speedup is not None and part.decode.interval is not None
        ]
        if len(parts) < 2:
            continue
        high, low = max(parts, key=lambda p: p[1]), min(parts, key=lambda p: p[1])
        if high[2][0] > low[2][1] and high[1] / low[1] >= widest and high[1] > 1:
            widest, said = high[1] / low[1], (m, high, low)
    if said is None:
        return
    m, (best, gain, _), (worst, other, _) = said
    yield Advice(
        3,
        f"{_name(m)}: {best} goes {gain:.2f}x, {worst} {other:.2f}x: agreement depends on the "
        "text.",
        f"Keep a profile for texts like {best} and another for those like {worst}: localspec tune "
        f"--model {model} --workload ..., then chat --profile NAME.",
    )


def _too_dear(baseline: Measured, members: Sequence[Measured]) -> Iterator[Advice]:
    """Rules 1 and 4, where nothing is faster: of the drafter that came nearest, is it drafting or
    verifying that costs more than the accept length brings?"""
    if not members or any(m.verdict == "faster" for m in members):
        return
    slower = [m for m in members if m.verdict == "slower" and m.decode.speedup]
    if not slower:
        return
    m = max(slower, key=lambda m: m.decode.speedup or 0.0)
    plain, mine = _step(baseline.figures), _step(m.figures)
    length = m.figures.counts.accept_length
    if plain is None or mine is None or length is None or not plain.verify:
        return
    needed, drafting = mine.whole / plain.whole, mine.draft / plain.verify
    verifying = mine.verify / plain.verify
    if length >= needed:
        return
    who = _name(m)
    if drafting >= DEAR and drafting >= verifying - 1:
        one = m.candidate.drafter.n_max == 1
        tried = any(x.candidate.drafter.method == "ngram" for x in members)
        yield Advice(
            1,
            f"{who}: an accept length of {length:.2f} at a draft cost of {drafting:.2f} target "
            f"passes cannot pay; it needs {needed:.2f}.",
            f"Try {'a lighter drafter' if one else 'shorter drafts (--n-max auto)'}"
            f"{'' if tried else ', or ngram, which costs next to nothing'}.",
        )
    # what it says of the target holds only where none came nearer, undecided as that may be
    nearest = max(x.decode.speedup or 0.0 for x in members) == m.decode.speedup
    if nearest and length >= AGREES and verifying - 1 > drafting:
        tps = baseline.figures.decode_tps or 0.0
        yield Advice(
            4,
            f"{who} agrees well (accept length {length:.2f}), but a pass over its drafts takes "
            f"{verifying:.2f} plain ones: at {tps:.1f} tok/s alone this target leaves little to "
            "gain here.",
            "Measure a larger target, or on a GPU: the slower a plain pass, the more drafts bring.",
        )


@dataclass(frozen=True, slots=True)
class _Step:
    """Seconds of a mean step."""

    whole: float
    draft: float
    verify: float


def _step(figures: Figures) -> _Step | None:
    t, n = figures.times, figures.counts.target_calls
    return _Step(t.step / n, t.draft / n, t.verify / n) if n and t.step > 0 else None


def _wrong(audits: Mapping[str, Audit], m: Measured) -> bool:
    return audits.get(m.candidate.key, Audit()).mismatches > 0


def _misfit(m: Measured) -> bool:
    """An n-gram drafter guesses, and belongs to every target."""
    return m.candidate.drafter.method != "ngram" and m.figures.counts.hardly_accepted


def _name(m: Measured) -> str:
    """As the tables name it."""
    d = m.candidate.drafter
    on = f" on {m.candidate.base.name}" if m.candidate.base.name else ""
    return f"{d.name} n={d.draft_length}{on}"
