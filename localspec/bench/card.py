"""The share card: one picture that says how much faster what is, on what, and how sure that is."""

from __future__ import annotations

from typing import Any

from localspec.bench.history import best
from localspec.bench.pairs import speeds_of
from localspec.bench.svg import (
    FAINT,
    GREEN,
    GREY,
    INK,
    RED,
    SOFT,
    document,
    fitted,
    line,
    rect,
    size_for,
    text,
)
from localspec.bench.table import named, number, percent, speedup
from localspec.units import with_interval

Json = dict[str, Any]
WIDTH, HEIGHT, EDGE = 1200.0, 630.0, 64.0
"""The size at which sites show a picture beside a link."""
COLUMN = 690.0
"""Where the right half begins."""
POSITIONS = 8
REACH = "#0072b2"
DIFFERS = "differs"


def to_card(result: Json) -> str:
    target = result["target"]
    chosen = best(result)
    parts = [
        rect(0, 0, WIDTH, 10, _colour(chosen)),
        *_head(result),
        *(_measured(result, chosen) if chosen else _nothing(result)),
        *_foot(result),
    ]
    return document(WIDTH, HEIGHT, f"localspec bench of {target['name']}", parts)


def _head(result: Json) -> list[str]:
    target = result["target"]
    title = str(target["name"])
    size = size_for(title, WIDTH - 2 * EDGE - 170, 44, 26, bold=True)
    gib = target["size_bytes"] / (1 << 30)
    weight = f"{gib:.1f} GiB" if gib >= 1 else f"{target['size_bytes'] / (1 << 20):.0f} MiB"
    bases = result.get("bases") or ()
    what = f"{len(bases)} bases, the first of {target['quant']}" if bases else target["quant"]
    under = f"{what}  ·  {target['arch']}  ·  {weight}"
    shown = fitted(title, size, WIDTH - 2 * EDGE - 170, bold=True)
    return [
        text(EDGE, 92, shown, size=size, bold=True),
        text(EDGE, 126, under, size=21, colour=SOFT),
        text(WIDTH - EDGE, 92, "localspec", size=25, colour=SOFT, anchor="end", bold=True),
    ]


def _measured(result: Json, chosen: Json) -> list[str]:
    plain = next(
        c
        for c in result["candidates"]
        if c["method"] == "none" and c["temperature"] == chosen["temperature"]
    )
    colour, interval = _colour(chosen), chosen["speedup_ci"]
    big = speedup(chosen).split()[0]
    words = {
        "faster": "faster",
        "slower": "slower than without",
        "no difference shown": "no difference shown",
    }
    said = words.get(chosen["verdict"] or "", "no verdict")
    if chosen["verdict"] == "faster":
        said = "as fast as the reference" if result.get("bases") else "as fast as without a drafter"
    sure = "too few runs for an interval"
    if interval is not None:
        _, low, high = with_interval(chosen["speedup"], interval)
        sure = f"95 % interval {low} to {high}"
    if _output(chosen) == DIFFERS:
        said, sure = "OUTPUT DIFFERS", "so this speed means nothing until that is explained"
    parts = [
        text(EDGE - 5, 268, big, size=128, colour=colour, bold=True),
        text(EDGE, 314, said, size=25, colour=colour, bold=True),
        text(EDGE, 348, sure, size=21, colour=SOFT),
    ]
    parts += _bars(result, chosen, plain, colour)
    parts += _figures(result, chosen)
    parts += _reach(chosen)
    return parts


def _bars(result: Json, chosen: Json, plain: Json, colour: str) -> list[str]:
    """Both speeds, to one scale: those whose quotient is the speedup above them. The table's, which
    are all tokens / all time, may lie the other way round."""
    speeds = speeds_of(result, chosen, plain)
    if speeds is None:
        return []
    wide, y, parts = COLUMN - EDGE - 170, 391.0, []
    for candidate, tps, paint in zip((plain, chosen), speeds, (GREY, colour), strict=True):
        who = named(candidate, result["candidates"])
        if candidate["method"] == "none":
            who = who.replace("baseline", "no drafter", 1)
        parts.append(text(EDGE, y, fitted(who, 20, wide), size=20))
        length = tps / max(speeds) * wide
        parts.append(rect(EDGE, y + 9, length, 22, paint, 4))
        speed = f"{number(tps, 1 if tps < 100 else 0)} tok/s"
        parts.append(text(EDGE + length + 12, y + 27, speed, size=20, bold=True))
        y += 66
    over = "prompts" if len(result["prompts"]) > 1 else "runs"
    said = f"tok/s: geometric means over the {over}, as the speedup is"
    parts.append(text(EDGE, y - 11, said, size=15, colour=SOFT))
    return parts


def _figures(result: Json, chosen: Json) -> list[str]:
    shown = (
        ("accept length", number(chosen["accept_length"])),
        ("acceptance rate", percent(chosen["acceptance_rate"])),
        ("output", _against_reference(result, chosen) or _output(chosen)),
    )
    parts, wide = [], (WIDTH - EDGE - COLUMN) / len(shown)
    for i, (what, value) in enumerate(shown):
        x = COLUMN + i * wide
        colour = RED if value == DIFFERS else INK
        size = size_for(value, wide - 8, 32, 18, bold=True)
        parts.append(text(x, 196, value, size=size, bold=True, colour=colour))
        parts.append(text(x, 224, what, size=size_for(what, wide - 8, 18, 12), colour=SOFT))
    return parts


def _against_reference(result: Json, chosen: Json) -> str | None:
    """Of another base: are its answers the reference's? None where nothing else is to be said."""
    for c in result["candidates"]:
        mine = (c.get("base"), c["temperature"]) == (chosen.get("base"), chosen["temperature"])
        texts = c.get("reference_outputs")
        if mine and texts and texts["same"] < texts["compared"] and _output(chosen) != DIFFERS:
            return "other text"
    return None


def _output(chosen: Json) -> str:
    kinds = {d["class"] for d in chosen["divergences"]}
    fit = chosen.get("distribution")
    if "MISMATCH" in kinds or (fit is not None and not fit["fits"]):
        return DIFFERS
    if chosen["identical"] is None:
        return "n/a"
    return "identical" if chosen["identical"] else "near ties" if kinds == {"near tie"} else "n/a"


def _reach(chosen: Json) -> list[str]:
    """How many drafts were accepted up to each position, as bars."""
    rates = chosen["reach_rate"][:POSITIONS]
    if not rates:
        return []
    top, bottom, right = 312.0, 468.0, WIDTH - EDGE
    parts = [text(COLUMN, 280, "drafts accepted up to position", size=18, colour=SOFT)]
    parts.append(line(COLUMN, bottom, right, bottom, FAINT, 2))
    step = min((right - COLUMN) / len(rates), 96.0)
    for i, rate in enumerate(rates):
        height, x = rate * (bottom - top), COLUMN + i * step
        parts.append(rect(x + 3, bottom - height, step - 10, height, REACH, 3))
        middle = x + step / 2 - 2
        label = f"{rate:.0%}"
        size = size_for("100%", step - 4, 18, 11)
        parts.append(text(middle, bottom - height - 7, label, size=size, anchor="middle"))
        number_ = text(middle, bottom + 23, str(i + 1), size=18, colour=SOFT, anchor="middle")
        parts.append(number_)
    return parts


def _nothing(result: Json) -> list[str]:
    plain = next((c for c in result["candidates"] if c["method"] == "none"), None)
    tps = plain["decode_tps"] if plain else None
    return [
        text(EDGE - 3, 268, number(tps, 1), size=128, bold=True),
        text(EDGE, 314, "tok/s; no drafter was measured", size=25, colour=SOFT),
    ]


def _foot(result: Json) -> list[str]:
    machine, build, settings = result["machine"], result["build"], result["settings"]
    prompts = sum(w["prompts"] for w in result["workloads"])
    workloads = ", ".join(w["name"] for w in result["workloads"])
    gpus = [d.partition(": ")[2] for d in build["devices"] if not d.startswith(("CPU", "BLAS"))]
    where = ", ".join(dict.fromkeys(gpus)) or machine.get("cpu") or "unknown machine"
    threads = settings.get("threads")
    on = f"{where}, {threads} thread{'' if threads == 1 else 's'}" if threads else str(where)
    how = f"{prompts} prompt{'' if prompts == 1 else 's'} ({workloads}), batch size 1"
    if result["settings"]["quick"]:
        how += ", quick"
    if result["status"] == "interrupted":
        how += ", INTERRUPTED"
    with_ = f"llama.cpp {build['llama_cpp']}, localspec {result['localspec']}, "
    with_ += str(result["created"])[:10]
    wide = (WIDTH - 2 * EDGE) / 2 - 20
    full = WIDTH - 2 * EDGE
    return [
        line(EDGE, 534, WIDTH - EDGE, 534, FAINT, 2),
        text(EDGE, 566, fitted(on, 19, full), size=19),
        text(EDGE, 596, fitted(how, 17, wide + 90), size=17, colour=SOFT),
        text(WIDTH - EDGE, 596, fitted(with_, 17, wide), size=17, colour=SOFT, anchor="end"),
    ]


def _colour(chosen: Json | None) -> str:
    if chosen is None:
        return GREY
    if _output(chosen) == DIFFERS:
        return RED
    return {"faster": GREEN, "slower": RED}.get(chosen["verdict"] or "", SOFT)
