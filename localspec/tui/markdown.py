"""Streamed Markdown as lines of styled text, with what was drafted marked in it.

Textual's own Markdown widget makes a widget of each paragraph, list item and table cell, and puts
a growing list together anew with each piece of text: an item more costs a list of 30 some 0.2 s on
a slow core. Here a document is a list of blocks of text. Only its last block is parsed again when
text comes, and a block that grows too long is cut: a piece of text costs the same however long the
answer is.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from textual.content import Content, Span
from textual.style import Style

if TYPE_CHECKING:  # 50 ms that the first paint does not wait for
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

CUT, CUT_ANY = 2_000, 20_000
"""Characters from which an unfinished list, paragraph, code block or table is cut, and the rest."""
REACH = 400
"""How far ahead in the source a shown character is looked for."""
BULLETS = "•◦▪"
NARROW = 8
"""Text is wrapped to no fewer cells, however deeply it is nested."""

# A model's words may neither move the cursor nor set the window's title.
_UNWANTED = {c: None for c in (*range(32), *range(127, 160)) if chr(c) != "\n"} | {9: "    "}
_LINK_END = re.compile(r"\](\([^)\n]*\)|\[[^\]\n]*\])?")
_SPACE_AFTER_MARKS = re.compile(r"[^\w\s]*(\s)")
# Where a paragraph is cut, its rest begins with a letter or digit: anything else, and a list item's
# number, could be a marker there. A backslash may be a line break.
_SPACE = re.compile(r"(?<=[^\s\\]) (?=[^\W_])(?!\d{1,9}(?:[.)]|$))")
_BETWEEN = re.compile(r"(?<=[^\W_])(?=[^\W_])(?!\d{1,9}(?:[.)]|$))")
_UNCLEAR = re.compile(r"\*(?!\s)|(?<!\w)_|~~|`|\[(?![^\]]*\])")
"""What may become markup by what follows."""
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])[ \t]+")
_STYLES = {"em_open": ".em", "strong_open": ".strong", "s_open": ".strike"}
_TOP_HEADINGS = ("h1", "h2")


class Line(NamedTuple):
    """A line as it is shown. ``fill``: the component class of the whole line, to its right end."""

    content: Content
    fill: str = ""

    def is_same(self, other: Line) -> bool:
        return self.fill == other.fill and self.content.is_same(other.content)


@dataclass(frozen=True, slots=True)
class Block:
    """Text that is wrapped as one. ``first`` stands before its first line, ``rest`` before the
    others; ``gap``: an empty line comes before it; ``at``: where it begins in the source;
    ``joint``: what is between it and the block before it, where both are one paragraph."""

    at: int
    content: Content
    first: Content = field(default_factory=Content)
    rest: Content = field(default_factory=Content)
    gap: bool = True
    joint: str | None = None

    def lines(self, width: int) -> Iterator[Line]:
        """Those of this block alone: ``add_lines`` joins it to the one before."""
        room = max(width - self.first.cell_length, NARROW)
        for i, text in enumerate(_wrapped(self.content, room)):
            yield Line((self.rest if i else self.first) + text if self.first else text)


@dataclass(frozen=True, slots=True)
class Code(Block):
    """Lines of code: folded where they must be, never between words."""

    def lines(self, width: int) -> Iterator[Line]:
        room = max(width - self.first.cell_length - 2, NARROW)
        before = self.first
        for line in self.content.split():
            for part in line.fold(room) if line.cell_length > room else [line]:
                yield Line(before + Content(" ") + part, "code")
                before = self.rest


@dataclass(frozen=True, slots=True)
class Rule(Block):
    """A line across."""

    def lines(self, width: int) -> Iterator[Line]:
        yield Line(Content("─" * width, [Span(0, width, ".faint")]))


@dataclass(frozen=True, slots=True)
class Table(Block):
    """Rows of cells; the first is the header, left out of a table's later parts (``headless``)."""

    rows: tuple[tuple[Content, ...], ...] = ()
    headless: bool = False

    def lines(self, width: int) -> Iterator[Line]:
        widths = self._widths(max(width - self.first.cell_length, NARROW))
        before = self.first
        for number, row in enumerate(self.rows):
            if self.headless and not number:
                continue
            cells = [_wrapped(cell, w) for cell, w in zip(row, widths, strict=False)]
            for y in range(max(map(len, cells), default=0)):
                texts = [cell[y] if y < len(cell) else Content() for cell in cells]
                if not number:
                    texts = [text.stylize(".strong") for text in texts]
                padded = [
                    text.pad_right(max(w - text.cell_length, 0))
                    for text, w in zip(texts, widths, strict=False)
                ]
                yield Line(before + Content(" │ ").join(padded))
                before = self.rest
            if not number:
                rule = "─┼─".join("─" * w for w in widths)
                yield Line(self.rest + Content(rule, [Span(0, len(rule), ".faint")]))

    def _widths(self, width: int) -> list[int]:
        """What the cells want; where that is too much, no column may be wider than it must."""
        wanted = [
            max((row[i].cell_length for row in self.rows if i < len(row)), default=0) or 1
            for i in range(max(map(len, self.rows), default=0))
        ]
        room = width - 3 * (len(wanted) - 1)
        widest = next(
            (w for w in range(max(wanted, default=1), 1, -1) if _sum_cut(wanted, w) <= room), 1
        )
        return [min(w, widest) for w in wanted]


def _sum_cut(widths: Sequence[int], most: int) -> int:
    return sum(min(w, most) for w in widths)


def _wrapped(content: Content, width: int) -> list[Content]:
    if "\n" not in content.plain and content.cell_length <= width:
        return [content]
    return [line.rstrip() for line in content.wrap(width)] or [Content()]


def add_lines(lines: list[Line], block: Block, width: int) -> None:
    """Add the block's lines to those of the blocks before it. Where it goes on with their last
    paragraph, that one's last line is wrapped once more with what follows: no cut can be seen."""
    if block.joint is not None and lines:
        begun = lines.pop().content
        mark = len(block.first)
        text = begun[mark:] + Content(block.joint) + block.content
        block = replace(block, first=begun[:mark], content=text)
    elif block.gap and lines:
        lines.append(Line(Content()))
    lines += block.lines(width)


class Document:
    """Markdown that grows. ``closed`` blocks stay as they are; the ``open`` ones are made anew by
    the next ``parse``."""

    def __init__(self) -> None:
        self.closed: list[Block] = []
        self.open: list[Block] = []
        self.source = ""
        self.drafted = bytearray()
        """For each character of the source: 1 where it was drafted."""
        self._parser: MarkdownIt | None = None
        self._parsed = 0
        self._tail = 0  # where the source begins that is parsed again
        self._opening = Opening()  # what a cut block goes on with
        self._gap: bool | None = None  # before the tail's first block, where it is known
        self._number: int | None = None  # of the list item that the tail begins with

    def append(self, text: str, *, drafted: bool = False) -> None:
        text = text.translate(_UNWANTED)
        self.source += text
        self.drafted += (b"\1" if drafted else b"\0") * len(text)

    def parse(self) -> None:
        """Take in what was appended."""
        for _ in self.parsing():
            pass

    def parsing(self) -> Iterator[None]:
        """``parse`` in steps that each take long; nothing may be appended between them."""
        if self._parsed == len(self.source):
            return
        self._parsed = len(self.source)
        while True:
            built = self._build(len(self.source))
            closed = bisect_left([block.at for block in built.blocks], built.restart)
            self.open = built.blocks[closed:]
            if closed:
                self.closed += built.blocks[:closed]
                self._begin_tail(built.restart, gap=built.restart_gap, number=built.number)
            length = len(self.source) - self._tail
            if length <= CUT:
                return
            at, opening = built.cut(self.source, self._tail)
            if at <= self._tail:
                return
            yield
            self.closed += self._build(at).blocks
            self._begin_tail(at, opening=opening, gap=False)

    def _begin_tail(
        self,
        at: int,
        *,
        opening: Opening | None = None,
        gap: bool | None,
        number: int | None = None,
    ) -> None:
        opening = opening or Opening()
        self._tail, self._opening, self._gap, self._number = at, opening, gap, number

    def _build(self, end: int) -> _Builder:
        if self._parser is None:
            from markdown_it import MarkdownIt

            self._parser = MarkdownIt("gfm-like")
        return _Builder(
            self._parser,
            self._opening,
            self.source[self._tail : end],
            bytes(self.drafted[self._tail : end]),
            self._tail,
            number=self._number,
            gap=self._gap,
        )


@dataclass(frozen=True, slots=True)
class Opening:
    """Source that a cut block's rest needs before it: the markers of the list items around it, of
    which ``items`` are not shown again; the first line of a code block; a table's header. ``joint``
    as in ``Block``."""

    text: str = ""
    items: int = 0
    joint: str | None = None


@dataclass
class _Nesting:
    """A list item or a quote around what follows: ``mark`` before its first line, ``pad`` before
    the others."""

    mark: Content
    pad: Content
    used: bool = False


class _Builder:
    """Blocks out of markdown-it's tokens.

    ``source`` begins at ``tail`` in the document's. ``restart`` is where a later parse may begin,
    and only what comes before it is certain; where a list item stands there, ``number`` is its
    number and ``restart_gap`` says whether an empty line comes before it.
    """

    def __init__(
        self,
        parser: MarkdownIt,
        opening: Opening,
        source: str,
        drafted: bytes,
        tail: int,
        *,
        number: int | None,
        gap: bool | None,
    ) -> None:
        source = opening.text + source
        shift = tail - len(opening.text)
        self.blocks: list[Block] = []
        self.restart = shift
        self.restart_gap: bool | None = None
        self.number: int | None = None
        self._source, self._shift = source, shift
        self._drafted = bytes(len(opening.text)) + drafted
        self._headless = bool(opening.text)
        self._leaf: tuple[Token, list[int]] | None = None  # the last, with its items' lines
        self._items: list[int] = []
        self._first_number = number
        self._offsets = [0]
        for line in source.splitlines(keepends=True):
            self._offsets.append(self._offsets[-1] + len(line))
        self._nesting: list[_Nesting] = []
        self._lists: list[int | None] = []  # the number of the next item, None for bullets
        self._cursor = 0
        self._at = shift
        self._top = True  # a list begins here, not inside another
        self._rows: list[list[Content]] = []
        self._plain: list[tuple[int, int]] = []  # of the last paragraph: text without any markup
        self._walk(parser.parse(source))
        del self.blocks[: opening.items]
        if gap is not None and self.blocks:
            self.blocks[0] = replace(self.blocks[0], gap=gap)
        if opening.joint is not None and self.blocks and type(self.blocks[0]) is Block:
            self.blocks[0] = replace(self.blocks[0], joint=opening.joint)

    def cut(self, source: str, tail: int) -> tuple[int, Opening]:
        """Where to cut the one block left (``tail``: not yet), and what its rest begins with."""
        end = source.rfind("\n") + 1
        if self._leaf is None:
            return tail, Opening()
        leaf, items = self._leaf
        if items and self._shift + self._offsets[items[-1]] > tail + CUT // 2:
            outer = items[:-1]  # before the last item
            return self._shift + self._offsets[items[-1]], Opening(self._markers(outer), len(outer))
        around, column = self._markers(items), 0
        line = self._source[self._offsets[_line(leaf)] :]
        if leaf.type == "fence":
            lines = source[tail:].rstrip().splitlines()
            if len(lines) > 1 and not lines[-1].strip().strip(leaf.markup[0]):
                return tail, Opening()  # it ends here: what comes next will close it
            column = line.find(leaf.markup)
            return end, Opening(f"{around}{' ' * column}{leaf.markup}{leaf.info}\n", len(items))
        if leaf.type == "table_open" and not items:
            return end, Opening("".join(line.splitlines(keepends=True)[:2]))
        if leaf.type == "paragraph_open":
            if leaf.level > 2 * len(items):  # a quote's, which no opening begins again
                return (len(source) if len(source) - tail > CUT_ANY else tail), Opening()
            at, joint = self._place(tail)
            marker = _ITEM.match(line) if items else None
            indent = "\n" + " " * (marker.end() if marker else len(line) - len(line.lstrip()))
            return at, Opening(around + indent if items else "", len(items), joint)
        return (end if len(source) - tail > CUT_ANY else tail), Opening()

    def _place(self, tail: int) -> tuple[int, str | None]:
        """Where in the source the last paragraph may be cut, and what is between its parts: at the
        last space outside all markup, else at the last space, else between two letters."""
        least = tail + CUT // 2 - self._shift
        areas = [*reversed(self._plain), (least, len(self._source))]
        for between, joint in ((_SPACE, " "), (_BETWEEN, "")):
            for start, end in areas:
                if end <= least:
                    continue
                found = [m.end() for m in between.finditer(self._source, max(start, least), end)]
                if found:
                    return self._shift + found[-1], joint
        far = len(self._source) > CUT_ANY
        return (self._shift + len(self._source) if far else tail), None

    def _markers(self, items: list[int]) -> str:
        """The markers of the list items that begin in these lines, each with a word."""
        markers = (_ITEM.match(self._source, self._offsets[line]) for line in items)
        return "".join(f"{marker.group()}x\n" for marker in markers if marker)

    # ---- tokens -------------------------------------------------------------------------------

    def _walk(self, tokens: list[Token]) -> None:
        for i, token in enumerate(tokens):
            if token.map is not None and token.nesting >= 0:
                start = self._offsets[token.map[0]]
                if token.type != "inline":
                    self._cursor = max(self._cursor, start)
                self._at = self._shift + start
                if token.level == 0 or (token.level == 1 and token.type == "list_item_open"):
                    self.restart = self._at
                    self.number = self.restart_gap = None
                if token.type in ("fence", "table_open", "paragraph_open"):
                    self._leaf = token, list(self._items)
            match token.type:
                case "bullet_list_open":
                    self._lists.append(None)
                case "ordered_list_open":
                    number = int(token.attrs.get("start", 1))
                    first = self._first_number if not self.blocks else None
                    self._lists.append(number if first is None else first)
                case "bullet_list_close" | "ordered_list_close":
                    self._lists.pop()
                    self._top = True
                case "list_item_open":
                    self._open_item(token)
                case "blockquote_open":
                    mark = Content("▎ ", [Span(0, 2, ".mark")])
                    self._nesting.append(_Nesting(mark, mark))
                case "list_item_close" | "blockquote_close":
                    if not self._nesting[-1].used:  # an empty item
                        self._add(Content(), gap=self._has_gap())
                    self._nesting.pop()
                    if token.type == "list_item_close":
                        self._items.pop()
                case "heading_open":
                    style = ".heading" if token.tag in _TOP_HEADINGS else ".subheading"
                    self._add(self._inline(tokens[i + 1]).stylize(style))
                case "paragraph_open":
                    self._add(self._inline(tokens[i + 1]), gap=self._has_gap())
                case "fence" | "code_block":
                    self._code(token)
                case "html_block":
                    self._add(self._text(token.content.rstrip("\n")))
                case "hr":
                    self._add(Content(), Rule)
                case "tr_open":
                    self._rows.append([])
                case "th_open" | "td_open":
                    self._rows[-1].append(self._inline(tokens[i + 1]))
                case "table_close":
                    rows, self._rows = tuple(map(tuple, self._rows)), []
                    self._add(Content(), Table, rows=rows, headless=self._headless)
                case _:
                    pass

    def _has_gap(self) -> bool:
        """In a list as the source has it; elsewhere always."""
        if self._top:
            return True
        at = self._at - self._shift
        before = self._source[max(at - NARROW, 0) : at].rstrip(" ")
        return before.endswith("\n\n")

    def _open_item(self, token: Token) -> None:
        self._items.append(_line(token))
        number = self._lists[-1]
        if token.level == 1 and not self._top:
            self.restart_gap = self._has_gap()
        if number is None:
            depth = sum(n is None for n in self._lists)
            mark = BULLETS[(depth - 1) % len(BULLETS)] + " "
        else:
            if token.level == 1:
                self.number = number
            mark = f"{number}. "
            self._lists[-1] = number + 1
        marked = Content(mark, [Span(0, len(mark), ".mark")])
        self._nesting.append(_Nesting(marked, Content(" " * len(mark))))

    def _add(
        self, content: Content, kind: type[Block] = Block, *, gap: bool = True, **more: Any
    ) -> None:
        first = Content().join(n.pad if n.used else n.mark for n in self._nesting)
        rest = Content().join(n.pad for n in self._nesting)
        fresh = any(not n.used for n in self._nesting)
        if fresh and not self._top and kind is not Block:
            gap = False  # a code block right after its bullet
        for nesting in self._nesting:
            nesting.used = True
        self._top = not self._lists
        self.blocks.append(kind(self._at, content, first, rest, gap, **more))

    def _code(self, token: Token) -> None:
        from textual.highlight import highlight

        language = token.info.split()[0] if token.info.strip() else "text"
        code = token.content.rstrip("\n")
        content = highlight(code, language=language)
        spans: list[Span] = []
        position = 0
        if token.type == "fence":
            self._cursor = max(
                self._cursor, self._offsets[min(_line(token) + 1, len(self._offsets) - 1)]
            )
        for line in code.splitlines(keepends=True):
            spans += self._marks(line, position)
            position += len(line)
        self._add(content.add_spans(spans), Code)

    # ---- text and what of it was drafted ------------------------------------------------------

    def _inline(self, token: Token) -> Content:
        texts: list[str] = []
        spans: list[Span] = []
        marks: list[Span] = []
        opened: list[tuple[int, str | Style]] = []
        position = 0
        self._plain, clear = [], True

        def add(text: str, style: str = "") -> None:
            nonlocal position
            marks.extend(self._marks(text, position))
            texts.append(text)
            if style:
                spans.append(Span(position, position + len(text), style))
            position += len(text)

        for child in token.children or ():
            if child.type == "softbreak":
                add(" ")
            elif child.type == "hardbreak":
                add("\n")
            elif child.type == "code_inline":
                add(child.content, ".code-inline")
            elif child.type == "image":
                add(f"🖼 {child.content}")
            elif child.type == "link_open":
                target = str(child.attrs.get("href", ""))
                opened.append(
                    (
                        position,
                        Style(underline=True) + Style.from_meta({"@click": f"link({target!r})"}),
                    )
                )
            elif child.type in _STYLES:
                opened.append((position, _STYLES[child.type]))
            elif child.type.endswith("_close") and opened:
                start, style = opened.pop()
                spans.append(Span(start, position, style))
                if child.type == "link_close":
                    end = _LINK_END.match(self._source, self._cursor)
                    self._cursor = end.end() if end else self._cursor
            else:
                add(child.content)
                if clear and not opened:
                    unclear = _UNCLEAR.search(child.content)
                    clear = unclear is None
                    length = unclear.start() if unclear else len(child.content)
                    if self._source.endswith(child.content, 0, self._cursor):
                        start = self._cursor - len(child.content)
                        self._plain.append((start, start + length))
        return Content("".join(texts), spans + marks)

    def _text(self, text: str) -> Content:
        return Content(text, self._marks(text, 0))

    def _marks(self, text: str, position: int) -> list[Span]:
        """Spans of ``text``, which is shown from ``position`` on, that were drafted."""
        flags = bytearray()
        source, at = self._source, self._cursor
        found = source.find(text, at, at + REACH + len(text)) if text.strip() else -1
        if found >= 0:
            flags += self._drafted[found : found + len(text)]
            self._cursor = found + len(text)
        else:  # entities, escapes, line breaks: character by character
            for character in text:
                if character.isspace():
                    match = _SPACE_AFTER_MARKS.match(source, at)
                    found = match.start(1) if match else -1
                else:
                    found = source.find(character, at, at + REACH)
                flags.append(self._drafted[found] if found >= 0 else flags[-1] if flags else 0)
                at = found + 1 if found >= 0 else at
            self._cursor = at
        spans, start = [], flags.find(1)
        while start >= 0:
            end = flags.find(0, start)
            end = len(flags) if end < 0 else end
            spans.append(Span(position + start, position + end, ".drafted"))
            start = flags.find(1, end)
        return spans


def _line(token: Token) -> int:
    return token.map[0] if token.map else 0
