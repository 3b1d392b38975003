"""How fast the answer is and why: a panel beside the chat, or a line or two above the prompt."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Digits

from localspec.reference import title_of
from localspec.tui.live import Figures, age
from localspec.tui.widgets.steady import Steady

EIGHTHS = " ▁▂▃▄▅▆▇█"
CURVE_ROWS = 3
CLOSE = 1.05
POSITIONS = 8
"""Bars of acceptance by position at the most."""


def curve_rows(
    values: Sequence[float], baseline: float | None, width: int, rows: int
) -> list[Content]:
    """The last ``width`` values as columns of ``rows`` lines, the baseline as a dashed line."""
    values = list(values)[-width:]
    top = 1.08 * max([*values, baseline or 0.0, 1e-9])
    heights = [v / top * rows * 8 for v in values]
    dashes = None if baseline is None else min(int(baseline / top * rows), rows - 1)
    lines = []
    for row in reversed(range(rows)):
        cells = [EIGHTHS[max(0, min(8, round(height - 8 * row)))] for height in heights]
        cells += [" "] * (width - len(cells))
        parts: list[Content | tuple[str, str] | str] = []
        for cell in cells:
            if row == dashes and cell == " ":
                parts.append(("┄", "$warning"))
            else:
                parts.append((cell, "$primary"))
        lines.append(Content.assemble(*parts))
    return lines


def spark(values: Sequence[float], width: int) -> str:
    values = list(values)[-width:]
    top = max(values, default=0.0) or 1.0
    return "".join(EIGHTHS[max(1, min(8, round(8 * v / top)))] for v in values)


def bar(share: float, width: int) -> Content:
    filled = round(max(0.0, min(1.0, share)) * width)
    return Content.assemble(("█" * filled, "$accent"), ("░" * (width - filled), "$text-disabled"))


def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "n/a"
    ms = seconds * 1e3
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms"


def rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def context(figures: Figures) -> str:
    held = "-" if figures.held is None else f"{figures.held:,}"
    return f"ctx {held}/{figures.n_ctx:,}" if figures.n_ctx else f"ctx {held}"


def _contexts(figures: Figures) -> tuple[str, str]:
    held, n_ctx = figures.held, figures.n_ctx
    used = "-" if held is None else f"{held / n_ctx:.0%}" if n_ctx else f"{held:,}"
    return context(figures), f"ctx {used}"


def _whose(figures: Figures) -> tuple[str, str]:
    """The drafter of the run that the figures are of, and its model where another is chosen now;
    also in fewer letters."""
    drafter = figures.drafter or figures.chosen
    if not figures.drafter or not figures.model:
        return drafter, drafter
    return f"{title_of(figures.model)}, {drafter}", f"other model, {drafter}"


def fitted(
    parts: Mapping[str, Sequence[Content | str]], order: Iterable[str], width: int
) -> Content:
    """``parts`` side by side, in ``width`` cells if they can. Each has its forms, the longest
    first, and as long as all is too wide the next part of ``order`` takes its next form; of an
    empty one nothing is shown."""
    forms = dict.fromkeys(parts, 0)
    todo = iter(order)
    while True:
        shown = [part for name, form in forms.items() if (part := parts[name][form])]
        line = Content(" · ").join([p if isinstance(p, Content) else Content(p) for p in shown])
        if line.cell_length <= width or (name := next(todo, None)) is None:
            return line
        forms[name] += 1


class SpeedPanel(VerticalScroll):
    """All of it, for wide terminals."""

    can_focus = False
    DEFAULT_CSS = """
    SpeedPanel {
        width: 46;
        height: 1fr;
        scrollbar-size-vertical: 1;
        & > Vertical, & > Static {
            height: auto;
            border: round $border-blurred;
            border-title-color: $text-muted;
            padding: 0 1;
        }
        #rate { height: 3; }
        #rate Digits { width: auto; min-width: 12; color: $accent; }
        #rate Static { width: 1fr; padding-left: 2; height: 3; }
    }
    """

    def __init__(self) -> None:
        super().__init__(id="speed-panel")
        self._digits = Digits("-")
        self._beside = Steady()
        self._curve = Steady()
        self._speed = Vertical(Horizontal(self._digits, self._beside, id="rate"), self._curve)
        self._title: Content | None = None
        self._accepted = Steady()
        self._steps = Steady()
        self._wanted: tuple[Figures, str] | None = None

    def on_mount(self) -> None:
        self.call_after_refresh(self._build)

    async def _build(self) -> None:
        """Made after the first paint, which would wait a good while for so many parts."""
        self._speed.border_title = "Speed"
        self._accepted.border_title = "Accepted by position"
        self._steps.border_title = "Where a step's time goes"
        await self.mount_all([self._speed, self._accepted, self._steps])
        if self._wanted is not None:
            self.show(*self._wanted)

    def on_resize(self) -> None:
        if self._wanted is not None:
            self.show(*self._wanted)

    def show(self, figures: Figures, measure_key: str) -> None:
        self._wanted = figures, measure_key
        if not self._steps.is_attached:
            return
        width = max(self.size.width - 5, 20)
        self._digits.update(rate(figures.tps))
        length = figures.accept_length
        self._beside.update(
            Content.assemble(
                ("tok/s now" if figures.live else "tok/s", "bold"),
                "\n",
                ("accept length ", "$text-muted"),
                "-" if length is None else f"{length:.2f}",
                "\n",
                ("TTFT ", "$text-muted"),
                "-" if figures.ttft is None else milliseconds(figures.ttft),
            )
        )
        whose = _whose(figures) if figures.drafter else ("", "")
        title = fitted({"": ("Speed",), "whose": whose}, ["whose"], width)
        if title != self._title:  # each time it would be drawn anew
            self._speed.border_title = self._title = title
        base = figures.baseline
        lines = curve_rows(figures.curve, base.tps if base else None, width, CURVE_ROWS)
        last = {"": _baseline(figures, measure_key)}
        lines.append(fitted(last, [""] * (len(last[""]) - 1), width))
        self._curve.update(Content("\n").join(lines))
        self._accepted.update(self._positions(figures, width))
        self._steps.border_title = (
            f"Where a step's {milliseconds(figures.draft + figures.verify + figures.rest)} go"
            if figures.draft is not None and figures.verify is not None and figures.rest is not None
            else "Where a step's time goes"
        )
        self._steps.update(self._shares(figures, width))

    def _positions(self, figures: Figures, width: int) -> Content:
        if not figures.reach:
            why = "nothing was drafted" if figures.tps is not None else "not measured"
            return Content.styled(why, "$text-muted")
        rows = [
            Content.assemble(f"{i:>2} ", bar(share, width - 9), f" {share:>4.0%}")
            for i, share in enumerate(figures.reach[:POSITIONS], 1)
        ]
        if len(figures.reach) > POSITIONS:
            rest = f"   and {len(figures.reach) - POSITIONS} positions more"
            rows.append(Content.styled(rest, "$text-muted"))
        return Content("\n").join(rows)

    def _shares(self, figures: Figures, width: int) -> Content:
        parts = (
            ("draft", figures.draft, "$secondary"),
            ("verify", figures.verify, "$primary"),
            ("rest", figures.rest, "$warning"),
        )
        whole = sum(seconds or 0.0 for _, seconds, _ in parts)
        rows: list[Content] = []
        for name, seconds, colour in parts:
            filled = round((seconds or 0.0) / whole * (width - 17)) if whole else 0
            rows.append(
                Content.assemble(
                    (f"{name:<7}", "$text-muted"),
                    f"{milliseconds(seconds):>8} ",
                    ("▇" * filled, colour),
                )
            )
        more = [
            ("coverage ", "-" if figures.coverage is None else f"{figures.coverage:.0%}"),
            *([("beta ", f"{figures.beta:.2f}")] if figures.beta is not None else []),
        ]
        last: list[Content | tuple[str, str] | str] = []
        for name, value in more:
            last += [(name, "$text-muted"), value, "  "]
        rows.append(Content.assemble(*last, context(figures)))
        return Content("\n").join(rows)


def _colour(speedup: float) -> str:
    """One run against one run: a few per cent say nothing."""
    return "$success" if speedup > CLOSE else "$error" if speedup < 1 / CLOSE else "$warning"


def _baseline(figures: Figures, key: str) -> tuple[Content, ...]:
    """With its age and its depth, and in fewer letters."""
    base = figures.baseline
    if base is None:
        unknown = f"not measured: {key} measures it"
        return (Content.assemble(("baseline ", "$text-muted"), unknown),)
    if figures.speedup is not None:
        first = Content.assemble(
            (f"{figures.speedup:.2f} x", f"bold {_colour(figures.speedup)}"),
            f" of baseline {base.tps:.1f} ",
        )
    else:
        first = Content.assemble(("┄ ", "$warning"), f"baseline {base.tps:.1f} tok/s ")
    when = age(time.time() - base.measured)
    short, depth = when.removesuffix(" ago"), f", ctx {base.depth:,}"
    notes = f"({when}{depth})", f"({short}{depth})", f"({short})"
    return tuple(first + Content.styled(note, "$text-muted") for note in notes)


class SpeedLine(Steady):
    """The same in two lines, or in one where the terminal is low."""

    DEFAULT_CSS = """
    SpeedLine { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self) -> None:
        super().__init__(id="speed-line")
        self._wanted: tuple[Figures, str, int] | None = None

    def on_resize(self) -> None:
        if self._wanted is not None:
            self.show(*self._wanted)

    def show(self, figures: Figures, measure_key: str, lines: int) -> None:
        """All that fits, in whole words: what tells least is shortened or left out first."""
        self._wanted = figures, measure_key, lines
        length = figures.accept_length
        speed: dict[str, tuple[Content | str, ...]] = {
            "tok/s": _speeds(figures, (12, 8, 4) if lines > 1 else (8, 4)),
            "baseline": _against(figures, measure_key),
            "AL": (f"AL {'-' if length is None else f'{length:.2f}'}", ""),
            "whose": (*_whose(figures), ""),
        }
        width = self.content_size.width
        if lines == 1:
            order = "baseline ctx baseline tok/s tok/s whose ctx AL whose"
            speed["ctx"] = (*_contexts(figures), "")
            self.update(fitted(speed, order.split(), width))
            return
        reach = [f"{share:.0%}" for share in figures.reach]
        speed["reach"] = (" ".join(reach[:6]), " ".join(reach[:3]), "")
        order = "baseline tok/s reach tok/s baseline tok/s whose reach AL whose"
        first = fitted(speed, order.split(), width)
        draft, verify, rest = map(milliseconds, (figures.draft, figures.verify, figures.rest))
        coverage = "-" if figures.coverage is None else f"{figures.coverage:.0%}"
        steps: dict[str, tuple[str, ...]] = {
            "steps": (
                f"draft {draft}, verify {verify}, rest {rest}",
                f"draft {draft}, verify {verify}, rest {rest}".replace(" ms,", ","),
                "",
            ),
            "coverage": (f"coverage {coverage}", f"cov {coverage}", ""),
            "beta": ("" if figures.beta is None else f"beta {figures.beta:.2f}", ""),
            "TTFT": (f"TTFT {'-' if figures.ttft is None else milliseconds(figures.ttft)}", ""),
            "ctx": _contexts(figures),
        }
        order = "ctx coverage steps beta coverage TTFT steps"
        self.update(Content("\n").join([first, fitted(steps, order.split(), width)]))


def _speeds(figures: Figures, columns: Iterable[int]) -> tuple[Content, ...]:
    now = Content.assemble((rate(figures.tps), "bold $accent"), " tok/s")
    curves = (spark(figures.curve, n) for n in columns)
    return (*(now + Content.assemble(" ", (curve, "$primary")) for curve in curves), now)


def _against(figures: Figures, key: str) -> tuple[Content, Content, Content]:
    """The baseline with its age and its depth, with its age, and in the fewest letters."""
    base = figures.baseline
    if base is None:
        unknown = Content(f"baseline not measured ({key})")
        return unknown, unknown, unknown
    first = Content(f"baseline {base.tps:.1f}")
    if figures.speedup is not None:
        times = (f"{figures.speedup:.2f}x", _colour(figures.speedup))
        first = Content.assemble(times, f" of {base.tps:.1f}")
    when = age(time.time() - base.measured)
    return (
        first + f" ({when}, ctx {base.depth:,})",
        first + f" ({when})",
        first + f" ({when.removesuffix(' ago')})",
    )
