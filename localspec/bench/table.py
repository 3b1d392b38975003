"""A result (report.result) in words and tables: for the terminal, for Markdown.

Everything is made from the result's own names, so that a stored result shows as a fresh one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from localspec import units
from localspec.bench.rows import IN_NO_FIGURE
from localspec.records import ONE_PROMPT, Counts
from localspec.units import many

Json = dict[str, Any]
NA = "n/a"
REACH_SHOWN = 8
RARE = 0.01
"""Draft lengths of fewer steps than this share are not listed."""


VERIFIED = (2, 3, 4, 5, 9, 17)
"""Verify batches whose cost is told in words."""
APART = 0.05
"""From here on a speedup without an interval is visibly not the quotient of the tok/s."""
LEVELS_APART = 0.1
"""From here on it is told that costs were measured under other conditions than the runs."""


@dataclass(frozen=True, slots=True)
class Signs:
    """Characters that an old terminal may lack."""

    up: str = "▲"
    down: str = "▼"
    yes: str = "✓"


UNICODE = Signs()
ASCII = Signs("^", "v", "ok")


def signs_of(console: Console) -> Signs:
    return ASCII if console.options.ascii_only else UNICODE


@dataclass(frozen=True, slots=True)
class Column:
    """``width``: a longer cell is folded there; without it no cell ever is. Columns stand in the
    order of what a person asks first; ``head`` says whose row it is, in every table."""

    title: str
    cell: Callable[[Any, Signs], str]
    width: int | None = None
    right: bool = True
    head: bool = False


# ---- cells ------------------------------------------------------------------------------------


def number(value: float | None, digits: int = 2) -> str:
    return NA if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    return NA if value is None else f"{value:.0%}"


def label(candidate: Json) -> str:
    return "baseline" if candidate["method"] == "none" else str(candidate["drafter"])


def speedup(candidate: Json, prefix: str = "speedup") -> str:
    """1.12x [1.05, 1.19]"""
    value, interval = candidate[prefix], candidate[f"{prefix}_ci"]
    if value is None:
        return NA
    return units.speedup(value, interval)


def verdict(candidate: Json, signs: Signs) -> str:
    """The verdict, else why there is none; a crash that was got over is told below the table."""
    word = candidate["verdict"]
    if word in ("faster", "slower"):
        return f"{word} {signs.up if word == 'faster' else signs.down}"
    if word == "no difference shown":
        return str(word)
    if candidate["status"] != "ok":
        return str(candidate["status"])
    if word == "baseline":
        return ""
    return "no verdict" if candidate["speedup"] is not None else NA


def output(candidate: Json, signs: Signs) -> str:
    """Is the output the baseline's? If not: how many differ, the worst kind. Of another base's
    baseline: how many differ from the reference's, which is another model's right."""
    if candidate["verdict"] == "baseline":
        texts = candidate.get("reference_outputs")
        if not texts or not texts["compared"]:
            return ""
        other = texts["compared"] - texts["same"]
        return f"{other}/{texts['compared']} other text" if other else "same text"
    found, compared = candidate["divergences"], candidate["compared"]
    distribution = candidate.get("distribution")
    if distribution and not distribution["fits"]:
        return "MISMATCH"
    if candidate["identical"] is None and not found:
        if distribution:
            return f"{signs.yes} distribution"
        return "not comparable" if candidate["runs"] else NA
    if candidate["identical"]:
        return f"{signs.yes} {compared}/{compared}"
    counts = {
        "MISMATCH": sum(d["class"] == "MISMATCH" for d in found),
        "near tie": sum(d["class"] == "near tie" for d in found),
        "not classed": sum(d["class"] is None for d in found),
    }
    words = {"near tie": "near ties", "MISMATCH": "MISMATCHES"}
    kind = next(kind for kind in ("MISMATCH", "not classed", "near tie") if counts[kind])
    return f"{counts[kind]} {words.get(kind, kind) if counts[kind] > 1 else kind}"


def reach(candidate: Json) -> str:
    """By position; of many positions the first ones and the last."""
    rates = [f"{100 * r:.0f}" for r in candidate["reach_rate"]]
    if len(rates) > REACH_SHOWN:
        rates = [*rates[: REACH_SHOWN - 1], "..", rates[-1]]
    return " ".join(rates) or "-"


def shares(candidate: Json, parts: Sequence[str] = ("draft", "verify", "overhead")) -> str:
    share = candidate["share"]
    return NA if share is None else "/".join(f"{100 * share[part]:.0f}" for part in parts)


def _rolls_back(candidate: Json) -> bool:
    """Does taking back what was rejected take a share of the time that is seen?"""
    share = candidate["share"]
    return share is not None and round(100 * share["rollback"]) >= 1


def _drafted(show: Callable[[Json], str]) -> Callable[[Json, Signs], str]:
    """A cell that says nothing about a baseline."""
    return lambda c, _: "-" if c["method"] == "none" else show(c)


def contenders(result: Json) -> list[Json]:
    """Every candidate but what all are compared with, each with its speedup and verdict over that:
    the baseline, or where there are several bases the first one's."""
    if not result.get("bases"):
        return [c for c in result["candidates"] if c["method"] != "none"]
    first = result["bases"][0]["name"]
    return [
        {
            **_over_reference(c),
            "verdict": c["reference_verdict"],
            "chosen_at": c["reference_chosen_at"],
            "by_workload": {name: _over_reference(p) for name, p in c["by_workload"].items()},
        }
        for c in result["candidates"]
        if c["method"] != "none" or c["base"] != first
    ]


def _over_reference(figures: Json) -> Json:
    own = {"speedup": figures["reference_speedup"], "speedup_ci": figures["reference_speedup_ci"]}
    return figures | own


def winning(candidate: Json) -> str | None:
    """The verdict on what decides: where there are several bases, the speed over the reference."""
    found: str | None = candidate.get("reference_verdict") or candidate["verdict"]
    return found


def over_reference(candidate: Json, signs: Signs) -> str:
    """1.43x [1.40, 1.46] ▲; of the reference's own baseline only its name."""
    if candidate["reference_speedup"] is None:
        return NA
    word = candidate["reference_verdict"]
    if word is None and candidate["reference_speedup_ci"] is None and candidate["method"] == "none":
        return "reference" if candidate["reference_speedup"] == 1.0 else _reference(candidate)
    sign = {"faster": f" {signs.up}", "slower": f" {signs.down}"}.get(word or "", "")
    return _reference(candidate) + sign


def _reference(candidate: Json) -> str:
    return speedup(candidate, "reference_speedup")


BASE = Column("base", lambda c, _: str(c.get("base", "")), width=26, right=False, head=True)
DRAFTER = Column("drafter", lambda c, _: label(c), width=20, right=False, head=True)
N_MAX = Column("n", lambda c, _: str(c["n_max"]) if c["n_max"] else "-", head=True)
TEMPERATURE = Column("temp", lambda c, _: f"{c['temperature']:g}", head=True)
RUNS = Column("runs", lambda c, _: str(c["runs"]))
VERDICT = Column("verdict", verdict, right=False)
OUTPUT = Column("output", output, right=False)
SHARES = Column("draft/verify\n/overhead %", lambda c, _: shares(c))
SHARES_AND_ROLLBACK = Column(
    "draft/verify\n/rollback/overhead %",
    lambda c, _: shares(c, ("draft", "verify", "rollback", "overhead")),
)
COLUMNS = (
    Column("tok/s", lambda c, _: number(c["decode_tps"], 1)),
    Column("speedup [95 %]", lambda c, _: speedup(c), right=False),
    VERDICT,
    OUTPUT,
    Column("accept\nlength", lambda c, _: number(c["accept_length"])),
    Column("draft\ncoverage", _drafted(lambda c: percent(c["draft_coverage"]))),
    Column("acceptance\nrate", _drafted(lambda c: percent(c["acceptance_rate"]))),
    Column("reach % by\nposition", _drafted(reach), right=False),
    Column("TTFT\nms", lambda c, _: number(c["ttft_ms"], 0)),
    SHARES,
)


OVER_REFERENCE = Column("over reference [95 %]", over_reference, right=False)


def unlike_runs(result: Json) -> bool:
    """Are the figures of some candidates of more runs than those of others, as when it was
    interrupted? Then their tok/s are not of the same prompts."""
    return len({c["runs"] for c in result["candidates"] if c["runs"]}) > 1


def unlike_quotients(result: Json, *, parts: bool = False) -> list[str]:
    """Where a speedup is not what its row's tok/s over the baseline's seem to say, "ngram n=2 has
    1.13x where they give 0.95x"; with ``parts`` also of each workload."""
    found = []
    for who, over, of, plain, shown in _speedups(result, parts):
        if not (of["decode_tps"] and plain["decode_tps"] and shown["speedup"]):
            continue
        quotient = of["decode_tps"] / plain["decode_tps"]
        if _seen_apart(quotient, shown["speedup"], shown["speedup_ci"]):
            has = speedup(shown).split()[0]
            found.append(f"{who} has {has}{over} where they give {quotient:.2f}x")
    return found


def _speedups(result: Json, parts: bool) -> Iterator[tuple[str, str, Json, Json, Json]]:
    """Every speedup of the tables: whose, over what if not over the baseline, the figures that have
    the two tok/s, and those that have the speedup: of what was measured again, as it was chosen,
    which is of the same runs as its tok/s."""
    everyone = result["candidates"]
    for c in everyone:
        first, *plain = [
            p for p in everyone if p["method"] == "none" and p["temperature"] == c["temperature"]
        ]
        own = next(p for p in (first, *plain) if p.get("base") == c.get("base"))
        who = named(c, everyone)
        if own is not c:
            yield who, "", c, own, c["chosen_at"] or c
            for workload, part in c["by_workload"].items() if parts else ():
                yield f"{who} in {workload}", "", part, own["by_workload"][workload], part
        if own is not first:
            shown = c["reference_chosen_at"] or _over_reference(c)
            yield who, " over the reference", c, first, shown


def _seen_apart(quotient: float, value: float, interval: Sequence[float] | None) -> bool:
    """Would a person who divides the tok/s think that the speedup is wrong? It lies on the other
    side of 1, or its interval leaves the quotient out."""
    shown, said = round(quotient, 2), round(value, 2)
    if shown == said:
        return False
    if (shown - 1) * (said - 1) < 0:
        return True
    if interval is None:
        return abs(quotient / value - 1) > APART
    return not interval[0] <= quotient <= interval[1]


def columns(result: Json) -> tuple[Column, ...]:
    several = len({c["temperature"] for c in result["candidates"]}) > 1
    head = (DRAFTER, N_MAX, *((TEMPERATURE,) if several else ()))
    runs = (RUNS,) if len({c["runs"] for c in result["candidates"]}) > 1 else ()
    apart = SHARES_AND_ROLLBACK if any(map(_rolls_back, result["candidates"])) else SHARES
    speed, *others = (apart if column is SHARES else column for column in COLUMNS)
    if not result.get("bases"):
        return (*head, *runs, speed, *others)
    return (BASE, *head, *runs, speed, OVER_REFERENCE, *others)


def live_columns(result: Json) -> tuple[Column, ...]:
    """While it is measured: how many runs there are, and nothing that is judged at the end."""
    whole = [c for c in columns(result) if c not in (OVER_REFERENCE, RUNS)]
    head = [c for c in whole if c.head]
    return (*head, RUNS, *(c for c in whole if not c.head and c not in (VERDICT, OUTPUT)))


# ---- the terminal -----------------------------------------------------------------------------


def render(result: Json, console: Console) -> RenderableType:
    """The tables as wide as the console allows, without ever cutting a number. What a person asks
    first comes last, where the end of the output is seen."""
    signs = signs_of(console)
    first, *others = side_by_side(columns(result), result["candidates"], console, _is_faster)
    workloads = by_workload(result, signs, console)
    explained = notes(result, parts=shows_workloads(result))
    under = [Text(line, style="dim") for line in explained]
    loud = [Text(line, style="bold red") for line in alarms(result)]
    answer = [Text(line, style="bold") for line in conclusions(result)]
    head = Text(heading(result, console.width), style="bold")
    blocks: list[list[RenderableType]] = [
        *[_costs(model, console) for model in result.get("cost_model") or ()],
        *[[table] for table in (*workloads, *others[:-1])],
        [*others[-1:], *under],
        [head, first],
        [*loud],
        [*answer, *(Text(line) for line in advised(result))],
    ]
    parted = [part for block in blocks if block for part in ("", *block)]
    return Group(*parted[1:])


def side_by_side(
    chosen: Sequence[Column],
    items: Sequence[Any],
    console: Console,
    bold: Callable[[Any], bool] = lambda _: False,
) -> list[Table]:
    """All columns in one table, or in several where they do not fit; a line for each item."""
    head = [c for c in chosen if c.head]
    tables: list[Table] = []
    members: list[Column] = []
    for column in chosen:
        if column.head:
            continue
        wider = _table([*head, *members, column], items, console, bold)
        if members and _width(wider, console) > console.width:
            members = [column]
            tables.append(_table([*head, column], items, console, bold))
        else:
            members.append(column)
            tables[-1:] = [wider]
    return tables


def _is_faster(candidate: Json) -> bool:
    return winning(candidate) == "faster"


def _width(table: Table, console: Console) -> int:
    """How wide a table would like to be, numbers on one line."""
    unbounded = console.options.update(width=10_000)
    return Measurement.get(console, unbounded, table).maximum


def _table(
    chosen: Sequence[Column], items: Sequence[Any], console: Console, bold: Callable[[Any], bool]
) -> Table:
    table = _new_table()
    for column in chosen:
        _add_column(table, column)
    for item in items:
        cells = (column.cell(item, signs_of(console)) for column in chosen)
        table.add_row(*map(Text, cells), style="bold" if bold(item) else None)
    return table


def _new_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)


def _add_column(table: Table, column: Column) -> None:
    table.add_column(
        column.title,
        justify="right" if column.right else "left",
        no_wrap=column.width is None,
        max_width=column.width,
        overflow="fold",
    )


def shows_workloads(result: Json) -> bool:
    """Of a quick one not: two prompts say nothing. But how speed falls with depth was the question
    where there are several."""
    deep = any(p["depth"] for p in result["prompts"])
    several = len(result["workloads"]) > 1 and bool(result["rows"])
    return several and (deep or not result["settings"]["quick"])


def by_workload(result: Json, signs: Signs, console: Console) -> list[RenderableType]:
    """The workloads side by side, or below each other where they do not fit."""
    names = [w["name"] for w in result["workloads"]]
    if not shows_workloads(result):
        return []
    together = _workload_table(result, names, signs)
    if _width(together, console) <= console.width:
        return [together]
    return [_workload_table(result, [name], signs) for name in names]


def _workload_table(result: Json, names: Sequence[str], signs: Signs) -> Table:
    table = _new_table()
    head = [column for column in columns(result) if column.head]
    for column in head:
        _add_column(table, column)
    for workload in names:
        table.add_column(Text(f"{workload}:\ntok/s"), justify="right", no_wrap=True)
        table.add_column("\nspeedup [95 %]", no_wrap=True)
        table.add_column("accept\nlength", justify="right", no_wrap=True)
    for c in result["candidates"]:
        cells = [column.cell(c, signs) for column in head]
        for workload in names:
            part = c["by_workload"][workload]
            al = number(part["accept_length"])
            cells += [number(part["decode_tps"], 1), _judged(part, signs), al]
        table.add_row(*map(Text, cells))
    return table


def _judged(part: Json, signs: Signs) -> str:
    """1.12x [1.05, 1.19] ▲; only one prompt at several depths is judged at each of them."""
    sign = {"faster": f" {signs.up}", "slower": f" {signs.down}"}.get(part.get("verdict") or "", "")
    return speedup(part) + sign


# ---- the cost model ---------------------------------------------------------------------------

LENGTHS_SHOWN = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16)
COSTS = (
    Column("n", lambda p, _: str(p["n"] or "-"), head=True),
    Column("predicted\ntok/s", lambda p, _: number(p["predicted_tps"], 1)),
    Column("predicted\nspeedup", lambda p, _: f"{p['predicted_speedup']:.2f}x"),
    Column(
        "measured\ntok/s", lambda p, _: number(p["measured_tps"], 1) if p["measured_tps"] else ""
    ),
    Column("error", lambda p, _: f"{p['error']:+.0%}" if p["error"] is not None else ""),
    Column("accept\nlength", lambda p, _: number(p["accept_length"])),
    Column("pays\nfrom", lambda p, _: number(p["needed_accept_length"]) if p["n"] else ""),
    Column("ms a step: draft\n/verify/rest", lambda p, _: _milliseconds(p)),
)


def _milliseconds(p: Json) -> str:
    return "/".join(number(p[f"{part}_ms"], 1) for part in ("draft", "verify", "rest"))


def costs_shown(model: Json) -> list[Json]:
    """The draft lengths to show: some, those that were measured, and the best."""
    return [
        p
        for p in model["lengths"]
        if p["n"] in LENGTHS_SHOWN or p["measured_tps"] is not None or p["n"] == model["best_n"]
    ]


def cost_notes(model: Json) -> list[str]:
    """What the cost model says, in sentences."""
    lines = []
    for c in model["costs"]:
        one, *_ = verify = c["verify_ms"]
        sizes = [k for k in VERIFIED if k <= len(verify)]
        passes = ", ".join(f"{verify[k - 1] / one:.2f}" for k in sizes)
        lines.append(
            f"At {c['depth']} tokens of context a pass takes {one:.1f} ms, and "
            f"{passes} times that over {', '.join(map(str, sizes))} tokens."
        )
    if abs(model["level"] - 1) > LEVELS_APART:
        lines.append(
            f"In the runs a pass took {model['level']:.2f} times that (other load, other clock), "
            "and so it is predicted."
        )
    who = costs_of(model)
    best = next(p for p in model["lengths"] if p["n"] == model["best_n"])
    if not best["n"]:
        one = next(p for p in model["lengths"] if p["n"])
        lines.append(
            f"{who}: no draft length is predicted to pay. Drafts of {one['n']} need an accept "
            f"length of {one['needed_accept_length']:.2f}; they have {one['accept_length']:.2f}."
        )
        return lines
    rate = best["needed_rate"]
    even = f", or {rate:.0%} of each position's tokens accepted," if rate is not None else ""
    lines.append(
        f"{who}: the best draft length by these costs is {best['n']}, at "
        f"{best['predicted_speedup']:.2f}x; it breaks even at an accept length of "
        f"{best['needed_accept_length']:.2f}{even} and has {best['accept_length']:.2f}."
    )
    return lines


def costs_of(model: Json) -> str:
    """The drafter whose costs these are, "eagle3 on Q8_0"."""
    return f"{model['drafter']}{_on(model)}"


def costs_heading(model: Json) -> str:
    several = f", temperature {model['temperature']:g}" if model["temperature"] else ""
    return f"Costs of {costs_of(model)} at {model['depth']:.0f} tokens of context{several}"


def _costs(model: Json, console: Console) -> list[RenderableType]:
    tables = side_by_side(COSTS, costs_shown(model), console, lambda p: p["n"] == model["best_n"])
    lines = [Text(line, style="dim") for line in cost_notes(model)]
    return [Text(costs_heading(model), style="bold"), *tables, *lines]


# ---- sentences --------------------------------------------------------------------------------


def heading(result: Json, width: int | None = None) -> str:
    """What was measured, in one line where ``width`` allows one."""
    s, prompts = result["settings"], sum(w["prompts"] for w in result["workloads"])
    workloads = ", ".join(w["name"] for w in result["workloads"])
    runs = f", {s['runs']} runs" if s["runs"] > 1 else ""
    temperatures = sorted({c["temperature"] for c in result["candidates"]})
    how = (
        "greedy"
        if temperatures == [0]
        else "temperature " + ", ".join(f"{t:g}" for t in temperatures)
    )
    target = result["target"]
    threads = s.get("threads", NA)
    plural = "" if threads == 1 else "s"
    given = prompts == 1 and workloads == ONE_PROMPT
    what = "the prompt given" if given else f"{many(prompts, 'prompt')} of {workloads}"
    measured = f"{what}{runs}, up to {s['max_tokens']} tokens, {how}"
    if bases := result.get("bases"):
        return f"{target['name']} on {len(bases)} bases: {measured}, context {s.get('n_ctx', NA)}"
    whole = (
        f"{target['name']} ({target['arch']}, {target['quant']}): {measured}, "
        f"context {s.get('n_ctx', NA)}, {threads} thread{plural}"
    )
    if width is None or len(whole) <= width:
        return whole
    return f"{target['name']} ({target['quant']}): {measured}, {threads} thread{plural}"


def alarms(result: Json) -> list[str]:
    """What must not be overlooked."""
    lines = []
    for c in result["candidates"]:
        wrong = [d for d in c["divergences"] if d["class"] == "MISMATCH"]
        if wrong:
            d = wrong[0]
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            lines.append(
                f"MISMATCH: {name(c)} gives another output than it should, first at token "
                f"{d['token']} of {d['workload']}/{d['prompt']}{more} ({d['why']}). Its speed "
                "means nothing until this is explained."
            )
        distribution = c.get("distribution")
        if distribution and not distribution["fits"]:
            lines.append(
                f"MISMATCH: the {distribution['tokens']} tokens of {name(c)} do not come from the "
                f"target's distributions ({_fit(distribution)}). Its speed means nothing until "
                "this is explained."
            )
    troubles: dict[tuple[str, str], list[str]] = {}
    for c in result["candidates"]:
        if c["status"] in ("crashed", "refused"):
            troubles.setdefault((c["status"], c["reason"]), []).append(name(c))
    lines += [f"{', '.join(who)} {status}: {why}" for (status, why), who in troubles.items()]
    faulty = _flagged(result, "faulty")
    if faulty:
        lines.append(
            f"FAULTY: {len(faulty)} greedy repetitions gave other tokens than the first run: "
            + _few(faulty)
        )
    return lines


FLAG_NOTES = {
    "short": "have fewer than 32 tokens, too few for a steady speed",
    "repeats": "end in a loop, which inflates the accept length",
    "context": "ended because the context was full",
    "disturbed": "had more or less other load or another clock than the rest, or the machine stood "
    "still",
    "left-out": "were disturbed or stand beside one that was, and are in no figure",
    "replaced": "were measured again and are in no figure",
    "parted": "are of prompts half measured when it was interrupted, and were made again",
    "crashed": "ended with the engine's death",
    "cancelled": "were cut by the user and are in no figure",
}


DOUBTS = ("short", "repeats", "context")
"""Flags that say what is doubtful of a run's own figures."""


def flag_note(flag: str, runs: int, total: int, which: str = "") -> str:
    return f"{flag}: {runs} of {total} runs {FLAG_NOTES[flag]}{which}."


def notes(result: Json, *, parts: bool = True) -> list[str]:
    """Footnotes: what the columns mean and which rows are doubtful. ``parts``: are the workloads
    shown one by one?"""
    lines = []
    if len(result["candidates"]) > 1:
        own = " on its own base" if result.get("bases") else ""
        lines.append(
            f"speedup: mean ratio of decode tok/s to the baseline's{own} on the same prompts."
        )
    if unlike_runs(result):
        lines.append(
            "runs: they differ, so tok/s beside each other are of unlike sets of prompts. Each "
            "speedup is of the prompts that its row and the baseline both have."
        )
    if apart := unlike_quotients(result, parts=parts):
        more = [f"and {len(apart) - 2} more"] if len(apart) > 2 else []
        lines.append(
            "tok/s: all tokens / all time; speedup: the mean over the prompts. It need not be the "
            f"quotient of two tok/s: {', '.join([*apart[:2], *more])}."
        )
    asked, tokens = (
        (result.get("options") or {}).get("max_tokens"),
        result["settings"]["max_tokens"],
    )
    if asked and asked > tokens:
        lines.append(
            f"--quick: runs of {tokens} tokens, not of {asked}, so that it ends in about a minute."
        )
    if bases := result.get("bases"):
        lines.append(f"over reference: the same, to the baseline on {bases[0]['name']}.")
    if any(map(_corrected, result["candidates"])):
        lines.append("Verdicts are corrected (Holm), so an interval may exclude 1 without one.")
    methods = {c["speedup_method"] for c in result["candidates"]} - {None}
    if any("this prompt only" in m for m in methods):
        lines.append("The interval is over runs of one prompt: it speaks for this prompt only.")
    for c in result["candidates"]:
        chosen = c.get("reference_chosen_at") or c["chosen_at"]
        if c["confirmed"] and chosen:
            lines.append(
                f"{name(c)}: the speedup shown was measured again, on runs not used to choose it "
                f"(when chosen: {speedup(chosen)})."
            )
        lines += _lengths(c) + _sources(c) + _replays(c)
        if c["method"] != "ngram" and _counts(c).hardly_accepted:
            lines.append(
                f"{name(c)}: only {c['acceptance_rate']:.1%} of {c['counts']['drafted']} drafted "
                "tokens were accepted: is it made for this target? A quantised --draft-kv-type can "
                "do this too."
            )
        ties = [d for d in c["divergences"] if d["class"] == "near tie"]
        if ties:
            followed = c.get("followed")
            checked = f"; their {followed} tokens were checked one by one" if followed else ""
            lines.append(
                f"{name(c)}: {len(ties)} of {c['compared']} outputs part from the baseline's at a "
                f"near tie ({_widest(ties)}): rounding, not an error{checked}."
            )
        distribution = c.get("distribution")
        if distribution and distribution["fits"]:
            lines.append(
                f"{name(c)}: drafts are drawn by chance, so outputs are not compared token by "
                f"token; the {distribution['tokens']} tokens fit the target's distributions "
                f"({_fit(distribution)})."
            )
        unclassed = [d for d in c["divergences"] if d["class"] is None]
        if unclassed:
            lines.append(
                f"{name(c)}: {len(unclassed)} differences not classed: {unclassed[0]['why']}."
            )
    lines += dict.fromkeys(note for c in result["candidates"] for note in c.get("notes", ()))
    total = len(result["rows"])
    if result["resumed"]:
        earlier = sum(s["runs"] for s in result["resumed"])
        when = ", ".join(s["created"] for s in result["resumed"])
        lines.append(
            f"Resumed: {earlier} of {total} runs are from an earlier sitting ({when}); runs are "
            "only compared with runs of their own sitting."
        )
    for flag in FLAG_NOTES:
        rows = _flagged(result, flag)
        if rows:
            lines.append(flag_note(flag, len(rows), total, f" ({_few(rows)})"))
    if result["settings"].get("order") == "blocks":
        lines.append(
            "The contexts do not fit into memory together: measured in blocks baseline, candidate, "
            "candidate, baseline instead of prompt by prompt."
            if not result.get("bases")
            else "The bases do not fit into memory together: measured in blocks reference, base, "
            "drafter, base, reference instead of prompt by prompt."
        )
    lines += [f"{s['workload']}/{s['prompt']} {s['reason']}." for s in result["skipped"]]
    return lines


def _fit(distribution: Json) -> str:
    uniform, smallest = distribution["uniform_p"], distribution["smallest_p"]
    return f"p = {uniform:.2g} by Kolmogorov-Smirnov, {smallest:.2g} by the least likely token"


def _corrected(candidate: Json) -> bool:
    """Does the interval alone say more than the verdict?"""
    interval = candidate["speedup_ci"]
    no_verdict = candidate["verdict"] == "no difference shown"
    return no_verdict and interval is not None and not interval[0] <= 1 <= interval[1]


def _counts(candidate: Json) -> Counts:
    names = ("steps", "steps_with_draft", "target_calls", "drafted", "accepted")
    return Counts(**{name: candidate["counts"][name] for name in names})


def _widest(ties: Sequence[Json]) -> str:
    """The tie that is the hardest to believe, beside what explains it."""
    d = max(ties, key=lambda d: d["margin"] or 0.0)
    most = "the widest: " if len(ties) > 1 else ""
    where = f"{most}{d['workload']}/{d['prompt']} at token {d['token']}"
    if d["margin"] is None or d["max_difference"] is None:
        return where
    return (
        f"{where}, margin {d['margin']:.3g} where the logits of the two ways differ by up to "
        f"{d['max_difference']:.3g}"
    )


def _replays(c: Json) -> list[str]:
    counts = _counts(c)
    if not counts.replays:
        return []
    return [
        f"{name(c)}: replays after rejected drafts took {counts.replays} of the "
        f"{counts.target_calls} target passes (this memory cannot be rolled back)."
    ]


def _lengths(c: Json) -> list[str]:
    """What adaptive lengths chose, in shares of the steps; how large trees were."""
    lengths, steps = c["counts"].get("lengths", ()), c["counts"]["steps"]
    if c.get("tree") == "auto" and c["counts"]["steps_with_draft"]:
        drafted = c["counts"]["steps_with_draft"]
        return [
            f"{name(c)}: the tree's size was chosen for each step, up to {c['tree_bound']} nodes: "
            f"{c['counts']['nodes'] / drafted:.1f} on average in {drafted / steps:.0%} of the "
            "steps, none in the others."
        ]
    if c.get("tree") and c["counts"]["steps_with_draft"]:
        nodes = c["counts"]["nodes"] / c["counts"]["steps_with_draft"]
        return [
            f"{name(c)}: n are the levels of its trees, and the rates count levels; a draft has "
            f"{nodes:.1f} nodes on average."
        ]
    if c["n_max"] != "auto" or not steps:
        return []
    shares = [f"{n} in {k / steps:.0%}" for n, k in enumerate(lengths) if k / steps >= RARE]
    return [
        f"{name(c)}: the draft length was chosen for each step, up to {c['n_max_bound']}: "
        f"{', '.join(shares)} of the steps."
    ]


def _sources(c: Json) -> list[str]:
    """Who drafted, where several may."""
    steps, parts = c["counts"]["steps"], []
    for source, figures in c.get("by_source", {}).items():
        share = figures["counts"]["steps"] / steps if steps else None
        parts.append(
            f"{source} in {percent(share)} of the steps (accept length when drafted "
            f"{number(figures['accept_length_drafted'])}, acceptance rate "
            f"{percent(figures['acceptance_rate'])})"
        )
    return [f"{name(c)}: drafted by {', by '.join(parts)}."] if parts else []


def advised(result: Json) -> list[str]:
    """What to try next, and why."""
    return [f"{a['text']} {a['next']}" for a in result.get("advice", ())]


def conclusions(result: Json) -> list[str]:
    """The answer, in one sentence per temperature; none is drawn from a part of the runs."""
    if result["status"] == "interrupted":
        if not any(row["tokens"] for row in result["rows"]):
            return ["Stopped before anything was measured."]
        return ["Stopped before the end: the figures are of the runs that were finished."]
    lines = []
    temperatures = list(dict.fromkeys(c["temperature"] for c in result["candidates"]))
    for temperature in temperatures:
        members = [c for c in result["candidates"] if c["temperature"] == temperature]
        answer = next(
            (a for a in result.get("answers", ()) if a["temperature"] == temperature), None
        )
        sentence = _of_bases(result, answer) if answer else _of_drafters(result, members)
        lines.append(
            f"Temperature {temperature:g}: {sentence}" if len(temperatures) > 1 else sentence
        )
    return lines


def _of_bases(result: Json, answer: Json) -> str:
    """One verdict on a table of several bases."""
    fastest, alone = (result["candidates"][answer[k]] for k in ("fastest", "alone"))
    drafting = answer["drafting"] is not None and result["candidates"][answer["drafting"]]
    reference = next(
        c
        for c in result["candidates"]
        if c["method"] == "none" and c["temperature"] == answer["temperature"]
    )
    plain = f"{number(reference['decode_tps'], 1)} tok/s"
    if reference["decode_tps"] is None:
        return "Nothing could be measured: no run gave two tokens or more."
    rivals = [c for c in contenders(result) if c["temperature"] == answer["temperature"]]
    if all(c["status"] in ("crashed", "refused") for c in rivals):
        return f"Nothing but {_the(reference)} could be measured; it runs at {plain}."
    if not any(c["verdict"] for c in rivals):
        return "Too few runs for a verdict: give three prompts or more, or --runs 5 for one prompt."
    if fastest is reference:
        return (
            f"Nothing is shown to be faster than {_the(reference)} ({plain}), by itself or with a "
            "drafter."
        )
    again = (
        ", measured again on runs not used to choose it"
        if fastest["confirmed"]
        else "; chosen by the same runs, so rather too good"
        if len(rivals) > 1
        else ""
    )
    said = [f"Fastest: {_the(fastest)}, {_reference(fastest)} of the reference's {plain}{again}."]
    if alone is reference:
        said.append("No other base is shown to be faster than the reference without a drafter.")
        return " ".join(said)
    if alone is not fastest:
        said.append(f"Fastest without a drafter: {_the(alone)}, {_reference(alone)}.")
    if drafting and answer["versus"] is not None:
        ratio = speedup(answer, "versus")
        said.append(
            {
                "faster": f"Drafting on the reference does not make up for it: {_the(alone)} is "
                f"{ratio} of {name(drafting)}.",
                "slower": f"Drafting on the reference beats it: {_the(alone)} is {ratio} of "
                f"{name(drafting)}.",
            }.get(
                answer["versus_verdict"] or "",
                f"Between it and {name(drafting)} no difference is shown ({ratio}).",
            )
        )
    return " ".join([*said, *_other_texts(result, fastest)])


def _of_drafters(result: Json, members: Sequence[Json]) -> str:
    """Of one prompt at several depths what is shown at each, and over all only where something is:
    they are few."""
    quick = result["settings"]["quick"]
    own = {"confirmed": False, "chosen_at": None, "verdict": None}
    said = []
    for prompt in result["prompts"]:
        of = prompt["workload"]
        there = [{**c, **own, **c["by_workload"][of]} for c in members if of in c["by_workload"]]
        if any(c["verdict"] for c in there):
            where = f"At {prompt['depth']:,} tokens" if prompt["depth"] else "As it is"
            said.append(f"{where}: {_conclusion(there, quick)}")
    if not said or any(c["verdict"] for c in members if c["method"] != "none"):
        said.insert(0, _conclusion(members, quick))
    return " ".join(said)


def _the(candidate: Json) -> str:
    return ("the " if candidate["method"] == "none" else "") + name(candidate)


def _other_texts(result: Json, chosen: Json) -> list[str]:
    """What a base that changes the target's words costs, as far as that was measured."""
    first = result["bases"][0]
    base = next(b for b in result["bases"] if b["name"] == chosen["base"])
    changed = [
        words
        for words, of in (("quantisation", "file"), ("KV type", "kv_type"))
        if base[of] != first[of]
    ]
    plain = next(
        c
        for c in result["candidates"]
        if c["method"] == "none"
        and (c["base"], c["temperature"]) == (chosen["base"], chosen["temperature"])
    )
    texts = plain["reference_outputs"]
    if not changed or not texts or not texts["compared"]:
        return []
    return [
        f"With another {' and '.join(changed)}, {texts['compared'] - texts['same']} of "
        f"{texts['compared']} answers are not the reference's; whether they are as good is not "
        "measured."
    ]


def _conclusion(members: Sequence[Json], quick: bool) -> str:
    baseline = next(c for c in members if c["method"] == "none")
    others = [c for c in members if c["method"] != "none"]
    plain = f"{number(baseline['decode_tps'], 1)} tok/s"
    if baseline["decode_tps"] is None:
        return "Nothing could be measured: no run gave two tokens or more."
    if not others:
        return f"The baseline runs at {plain}; no drafter was measured."
    judged = [c for c in others if c["verdict"] is not None]
    if not judged and all(c["status"] in ("crashed", "refused") for c in others):
        return f"No drafter could be measured; the baseline runs at {plain}."
    if not judged:
        return "Too few runs for a verdict: give three prompts or more, or --runs 5 for one prompt."
    faster = [c for c in judged if c["verdict"] == "faster"]
    fallen = [c for c in judged if c["confirmed"] and c["verdict"] != "faster"]
    if faster:
        best = max(faster, key=lambda c: (c["confirmed"], c["speedup"]))
        said = f"{name(best)} is {speedup(best)} of the baseline's {plain}"
        if best["confirmed"]:
            return f"{said}, measured again on runs not used to choose it."
        if len(others) > 1:
            more = ": without --quick the winner is measured again" if quick else ""
            return f"{said}; chosen by the same runs, so rather too good{more}."
        return f"{said}."
    if fallen:
        return (
            f"{name(fallen[0])} looked faster ({speedup(fallen[0]['chosen_at'])}) but was not when "
            f"measured again ({speedup(fallen[0])}): no drafter is shown to be faster than the "
            f"baseline ({plain})."
        )
    if all(c["verdict"] == "slower" for c in judged):
        return f"Every drafter measured is slower here: use the baseline ({plain})."
    return f"No drafter is shown to be faster here: use the baseline ({plain})."


def name(candidate: Json) -> str:
    """ "draft-model n=3", "baseline on Q8_0"."""
    n = f" n={candidate['n_max']}" if candidate["n_max"] else ""
    return label(candidate) + n + _on(candidate)


def named(it: Json, among: Iterable[Json], words: str | None = None) -> str:
    """Its name, or ``words`` for it, with its temperature where those ``among`` which it stands
    have several."""
    words = name(it) if words is None else words
    several = len({c["temperature"] for c in among}) > 1
    return f"{words} T={it['temperature']:g}" if several else words


def whose(candidate: Json) -> str:
    """The same of all draft lengths."""
    return label(candidate) + _on(candidate)


def _on(it: Json) -> str:
    """What a drafter is on, where there are several bases."""
    return f" on {it['base']}" if it.get("base") else ""


def _flagged(result: Json, flag: str) -> list[str]:
    """The rows with this flag, in words. Whether a run that is in no figure, for another reason, is
    fit to be in one is not asked."""

    def words(row: Json) -> str:
        who = f"{row['drafter']} n={row['n_max']}" if row["n_max"] else "baseline"
        return (
            f"{who}{_on(row)}, {row['prompt']}" if row.get("base") else f"{who} on {row['prompt']}"
        )

    elsewhere = IN_NO_FIGURE - {flag} if flag in DOUBTS else set()
    return [
        words(row)
        for row in result["rows"]
        if flag in row["flags"] and not elsewhere & set(row["flags"])
    ]


def _few(rows: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(rows))
    return ", ".join(distinct[:2]) + (", ..." if len(distinct) > 2 else "")


# ---- Markdown ---------------------------------------------------------------------------------


def to_markdown(result: Json) -> str:
    chosen = columns(result)
    lines = [f"## {heading(result)}", "", *_markdown_table(chosen, result["candidates"])]
    if by_workloads := workload_rows(result):
        lines += ["", "| workload | drafter | n | tok/s | speedup [95 %] | accept length |"]
        lines += ["|---|---|---:|---:|---|---:|", *map(_markdown_row, by_workloads)]
    for model in result.get("cost_model") or ():
        lines += ["", f"### {costs_heading(model)}", ""]
        lines += _markdown_table(COSTS, costs_shown(model))
        lines += ["", *(f"- {line}" for line in cost_notes(model))]
    if result.get("cost_model"):
        lines += ["", "### What was found"]
    for group in (alarms(result), notes(result), conclusions(result), advised(result)):
        lines += ["", *(f"- {line}" for line in group)] if group else []
    return "\n".join([*lines, "", *_made_with(result)]) + "\n"


def _made_with(result: Json) -> list[str]:
    """What the numbers belong to, and nobody else's machine has."""
    machine, build, target = result["machine"], result["build"], result["target"]
    devices = [d for d in build["devices"] if not d.startswith("CPU")]
    files = [f"`{target['file']}` (SHA-256 `{target['sha256'] or 'not taken'}`)"]
    drafters = {c["file"]: c["sha256"] for c in result["candidates"] if c["file"]}
    files += [f"`{file}` (SHA-256 `{hash_ or 'not taken'}`)" for file, hash_ in drafters.items()]
    return [
        f"localspec {result['localspec']}, llama.cpp {build['llama_cpp']} "
        f"(llama-cpp-python {build['llama_cpp_python']}), "
        f"{', '.join([machine.get('cpu') or 'unknown CPU', *devices])}, {result['created']}",
        "",
        "<details><summary>Files and settings</summary>",
        "",
        *(f"- {file}" for file in files),
        *(f"- {name}: {value}" for name, value in _settings(result["settings"])),
        "",
        "</details>",
    ]


def _settings(settings: Json) -> list[tuple[str, str]]:
    flat = {**settings, **settings.get("sampler", {})}
    return [(k, str(v)) for k, v in flat.items() if k != "sampler" and v not in (None, "")]


def workload_rows(result: Json) -> list[tuple[str, ...]]:
    """Workload, drafter (with its base), n, tok/s, speedup, accept length; none where there is one
    workload."""
    names = [w["name"] for w in result["workloads"]]
    if len(names) < 2:
        return []
    parts = [(w, c, c["by_workload"][w]) for w in names for c in result["candidates"]]
    return [
        (
            workload,
            whose(c),
            N_MAX.cell(c, UNICODE),
            number(part["decode_tps"], 1),
            speedup(part),
            number(part["accept_length"]),
        )
        for workload, c, part in parts
    ]


def _markdown_table(chosen: Sequence[Column], items: Sequence[Json]) -> list[str]:
    return [
        _markdown_row([c.title.replace("\n/", "/").replace("\n", " ") for c in chosen]),
        "|" + "|".join("---:" if c.right else "---" for c in chosen) + "|",
        *(_markdown_row([c.cell(item, UNICODE) for c in chosen]) for item in items),
    ]


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
