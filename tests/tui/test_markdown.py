"""Streamed Markdown: whatever the pieces, the same lines; the drafted text is marked where it is;
long answers cost no more than short ones."""

from __future__ import annotations

import random
from typing import Any

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.strip import Strip
from tui.talking import steady, until

from localspec.tui.markdown import CUT, Block, Code, Document, Line, Table, add_lines
from localspec.tui.screens.base import LightScreen
from localspec.tui.widgets.markdown_view import MarkdownView
from localspec.tui.widgets.turns import AnswerView, Transcript

TEXT = """\
# Lists *and* more

Some **bold** text, `code`, a
soft break, [the docs](https://example.com/path) and 5 &lt; 6.

1. one
2. two
   - sub `x`
   - sub y

     a paragraph of its own
3. three

```python
def f(x):
    return {"a": 1}  # a comment
```

| name | value |
|---|---|
| long cell | **2** |

> quoted
> twice

- a

- b

---
Die Tür, 漢字, 👩‍👩‍👧, שלום and the end
"""


def lines(document: Document, width: int = 60) -> list[str]:
    out: list[Line] = []
    for block in [*document.closed, *document.open]:
        add_lines(out, block, width)
    return [line.content.plain.rstrip() for line in out]


def written(*pieces: str) -> Document:
    document = Document()
    for piece in pieces:
        document.append(piece)
        document.parse()
    return document


def drafted(document: Document) -> str:
    """All that is shown as drafted."""
    contents = []
    for block in [*document.closed, *document.open]:
        rows = block.rows if isinstance(block, Table) else ((block.content,),)
        contents += [cell for row in rows for cell in row]
    return "".join(
        content.plain[span.start : span.end]
        for content in contents
        for span in content.spans
        if span.style == ".drafted"
    )


def test_markdown_is_shown_as_text() -> None:
    assert lines(written(TEXT)) == [
        "Lists and more",
        "",
        "Some bold text, code, a soft break, the docs and 5 < 6.",
        "",
        "1. one",
        "2. two",
        "   • sub x",
        "   • sub y",
        "",
        "     a paragraph of its own",
        "",
        "3. three",
        "",
        " def f(x):",
        '     return {"a": 1}  # a comment',
        "",
        "name      │ value",
        "──────────┼──────",
        "long cell │ 2",
        "",
        "▎ quoted twice",
        "",
        "• a",
        "",
        "• b",
        "",
        "─" * 60,
        "",
        "Die Tür, 漢字, 👩‍👩‍👧, שלום and the end",
    ]


@pytest.mark.parametrize("seed", range(6))
def test_the_pieces_it_comes_in_make_no_difference(seed: int) -> None:
    chance = random.Random(seed)
    document, at = Document(), 0
    while at < len(TEXT):
        size = chance.choice((1, 1, 2, 5, 30))
        document.append(TEXT[at : at + size], drafted=chance.random() < 0.5)
        document.parse()
        at += size
    assert lines(document) == lines(written(TEXT))


def test_no_line_is_wider_than_the_room() -> None:
    document = written(TEXT, "\n\n" + "x" * 300 + "\n\n```\n" + "漢" * 90 + "\n```\n")
    for width in (24, 40, 100):
        assert max(map(cell_len, lines(document, width))) <= width


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("a **[b c]** d", "b c"),
        ("x\n[yy\nz]z", "yy z"),
        ("see [the docs](https://e.org/the) [or more]", None),
        ("```py\nf(x)\n[return 1]\n```", "return 1"),
        ("| a | b |\n|--|--|\n| [c] | [d] |", "cd"),
        ("5 &lt; [6 and] \\*7", "6 and"),
        ("- one\n- [two]\n  1. [three]", "twothree"),
    ],
)
def test_drafted_text_is_marked_where_it_is_shown(source: str, shown: str | None) -> None:
    """Square brackets stand for the borders of drafted text."""
    if shown is None:  # the brackets of a link are real ones
        document = Document()
        document.append("see [the docs](https://e.org/the) ")
        document.append("or more", drafted=True)
        document.parse()
        assert drafted(document) == "or more"
        return
    document = Document()
    for i, piece in enumerate(source.replace("]", "[").split("[")):
        document.append(piece, drafted=i % 2 == 1)
        document.parse()
    assert drafted(document) == shown


LONG = {
    "list": lambda i: f"- item **{i}** with words\n",
    "numbers": lambda i: f"{i + 1}. item **{i}**\n",
    "nested": lambda i: ("1. x\n" if not i else "") + f"   - item **{i}**\n",
    "paragraphs": lambda i: f"Paragraph {i} with `code`.\n\n",
    "code": lambda i: ("```python\n" if not i else "") + f"x{i} = {i}  # note\n",
    "code in a list": lambda i: ("1. x\n   ```python\n" if not i else "") + f"   x{i} = {i}\n",
    "table": lambda i: ("| a | b |\n|--|--|\n" if not i else "") + f"| {i} | word |\n",
    "one line": lambda i: f"word{i} and ",
}


@pytest.mark.parametrize("kind", LONG)
def test_a_long_answer_is_parsed_in_short_parts_and_nothing_is_lost(kind: str) -> None:
    document = Document()
    longest = 0
    for i in range(600):
        document.append(LONG[kind](i), drafted=True)
        if i % 6 == 5:
            document.parse()
        longest = max(longest, len(document.source) - document._tail)
    assert longest < CUT + 400
    text = " ".join(lines(document, 200))
    words = {"code": "x{}", "code in a list": "x{}", "table": "{} ", "one line": "word{} "}
    form = words.get(kind, "item {}" if kind != "paragraphs" else "Paragraph {} ")
    assert [i for i in range(600) if form.format(i) not in text] == []
    blocks = [*document.closed, *document.open]
    if kind.startswith("code"):
        assert all(isinstance(b, Code) for b in blocks if "=" in b.content.plain)
    if kind == "numbers":
        assert text.startswith("1. item 0 2. item 1 3. item 2")
        assert "600. item 599" in text
    if kind == "nested":
        assert text.count("1. x") == 1
        assert {b.first.plain for b in blocks[1:]} == {"   • "}
    if kind == "table":
        assert text.count("a ") == 1
    if kind in ("list", "nested", "code", "table"):
        assert not any(block.gap for block in blocks[1:])


PLAIN = (
    "They **help to keep** the balance of nature - 3 of `them at least` are [rare](http://e.org), "
)
PARAGRAPHS = {
    "plain": PLAIN.replace("*", "").replace("`", "") * 60,
    "marked": PLAIN * 60,
    "opened late": PLAIN * 20 + "**" + "a long bold text " * 80 + "**" + PLAIN * 20,
    "no spaces": "森林は生態系の均衡を保つために重要です。" * 200,
    "numbers": "Count " + " ".join(f"{i}. and {i}) or" for i in range(700)),
}


@pytest.mark.parametrize("before", ["", "12. "])
@pytest.mark.parametrize("kind", PARAGRAPHS)
def test_where_a_long_paragraph_is_cut_cannot_be_seen(
    kind: str, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = before + PARAGRAPHS[kind]
    streamed = written(*(source[at : at + 90] for at in range(0, len(source), 90)))
    assert len([*streamed.closed, *streamed.open]) > 1, "it is cut"
    monkeypatch.setattr("localspec.tui.markdown.CUT", len(source))
    whole = written(source)
    assert len([*whole.closed, *whole.open]) == 1
    for width in (24, 60, 80, 99, 200):
        assert lines(streamed, width) == lines(whole, width)


def test_what_could_move_the_cursor_is_left_out() -> None:
    document = written("a\x1b[2Jb\x07\tc\r\nd\x9bx")
    assert lines(document) == ["a[2Jb    c dx"]


def test_an_unfinished_code_block_is_code_already() -> None:
    document = written("```py\nx = 1")
    assert [type(b) for b in document.open] == [Code]
    assert written("").open == []
    assert [type(b) for b in written("plain").open] == [Block]


def test_a_long_text_is_parsed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that is cut is parsed twice: in one go that is 20 ms."""
    built: list[int] = []
    build = Document._build

    def building(document: Document, end: int) -> object:
        built.append(end)
        return build(document, end)

    monkeypatch.setattr(Document, "_build", building)
    text = "".join(f"| {i} | word |\n" for i in range(CUT // 8))
    stepwise, whole = Document(), Document()
    for document in (stepwise, whole):
        document.append("| a | b |\n|--|--|\n" + text)
    steps = stepwise.parsing()
    next(steps)
    assert len(built) == 1
    assert lines(stepwise), "what is there can be shown meanwhile"
    assert not list(steps)
    whole.parse()
    assert lines(stepwise) == lines(whole)


async def test_a_long_paragraph_is_one_on_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it streams, as it is kept, and when the terminal gets another width."""

    class Shown(App[None]):
        def compose(self) -> ComposeResult:
            yield MarkdownView()

    source = "First.\n\n" + PARAGRAPHS["marked"] + "\n\nLast."
    monkeypatch.setattr("localspec.tui.widgets.markdown_view.AT_ONCE", 1)
    async with Shown().run_test(size=(62, 24)) as pilot:
        view = pilot.app.query_one(MarkdownView)

        def on_screen() -> list[str]:
            return [view._line(y).content.plain.rstrip() for y in range(view.size.height)]

        for start in range(0, len(source), 300):
            view.append(source[start : start + 300])
            view.flush()
            await pilot.pause()
        assert len(view.document.closed) > 2, "it is cut"
        assert on_screen() == lines(view.document, view.size.width)
        await pilot.resize_terminal(93, 24)
        await until(pilot, lambda: pilot.app.size == (93, 24) and not view._rewrapping)
        await steady(pilot)
        assert on_screen() == lines(view.document, view.size.width)
        kept = MarkdownView()
        await pilot.app.mount(kept)
        await kept.fill([(source, False)])
        await pilot.pause()
        assert [line.content.plain.rstrip() for line in kept._open_lines[-1:]] == ["Last."]
        assert kept.size.height == view.size.height


class Talk(LightScreen[None]):
    def compose(self) -> ComposeResult:
        with Transcript():
            yield AnswerView(tinted=True)


STREAMED = {
    "paragraph": PARAGRAPHS["marked"][:4_000],
    "mixed": TEXT * 3,
    "table": "| a | b |\n|--|--|\n" + "".join(f"| {i} | {'w' * (i % 40)} |\n" for i in range(120)),
    "heading below": "Two lines\nof text\n===\n" * 12,
    "list": "".join(f"- item **{i}**\n" for i in range(200)),
}


@pytest.mark.parametrize("kind", STREAMED)
async def test_what_streams_in_is_drawn_as_if_it_had_been_there(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what an answer grows by is drawn; whatever looks otherwise than before is painted."""
    source = STREAMED[kind]
    async with App[None]().run_test(size=(62, 24)) as pilot:
        screen = Talk()
        await pilot.app.push_screen(screen)
        await pilot.pause()
        answer, compositor = screen.query_one(AnswerView), screen._compositor
        painted: set[int] = set()
        paint, draw = compositor.render_update, MarkdownView.render_line
        drawn: list[int] = []

        def noted(**given: Any) -> Any:
            painted.update(y for region in compositor._dirty_regions for y in region.line_range)
            return paint(**given)

        def drawing(view: MarkdownView, y: int) -> Strip:
            drawn.append(y)
            return draw(view, y)

        monkeypatch.setattr(compositor, "render_update", noted)
        monkeypatch.setattr(MarkdownView, "render_line", drawing)

        def seen() -> list[list[Segment]]:
            return [list(strip) for strip in compositor.render_strips()]

        laid_out: list[object] = []
        lay_out = compositor.reflow
        monkeypatch.setattr(compositor, "reflow", lambda *g: (laid_out.append(g), lay_out(*g))[1])
        before, shown, pieces = seen(), 0, range(0, len(source), 97)
        for start in pieces:
            painted.clear()
            answer.append(source[start : start + 97], drafted=start % 2 == 1, thinking=False)
            drawn.clear()
            with screen.query_one(Transcript).following():
                answer.flush()
            await pilot.pause()
            await pilot.pause()
            shown += len(drawn)
            now = seen()
            for widget in screen.walk_children(with_self=True):
                widget._styles_cache.clear()
                if isinstance(widget, MarkdownView):
                    widget._strips.clear()
            assert now == seen(), "nothing that is kept has become stale"
            assert {
                y for y, (a, b) in enumerate(zip(before, now, strict=True)) if a != b
            } <= painted
            before = now
        assert len(laid_out) <= 1.2 * len(pieces) + 5, "once for each of them"
        assert shown < 3 * answer.size.height or kind == "table", "its columns become wider"


@pytest.mark.parametrize("blocks", [3, 60])
async def test_a_width_it_had_before_shows_it_as_it_was(blocks: int) -> None:
    """Textual remembers how it laid out a size, and asks for no height the second time."""
    source = "".join(f"{i}. paragraph, {PLAIN}\n\n" for i in range(blocks))
    async with App[None]().run_test(size=(62, 24)) as pilot:
        screen = Talk()
        await pilot.app.push_screen(screen)
        answer, view = screen.query_one(AnswerView), screen.query(MarkdownView).last()
        answer.append(source, drafted=False, thinking=False)
        answer.flush()
        for size in ((93, 24), (62, 24), (63, 30), (62, 24), (93, 40), (93, 24)):
            await pilot.resize_terminal(*size)
            await until(pilot, lambda size=size: screen.size == size and not view._rewrapping)
            await steady(pilot)
            on_screen = [view._line(y).content.plain.rstrip() for y in range(view.size.height)]
            assert on_screen == lines(view.document, view.size.width), size
            assert view._width == view.size.width
