"""The result as HTML, plots, a card, and its documented schema."""

import json
import re
import xml.etree.ElementTree as ET
from importlib import resources

import pytest

from localspec.bench import result_schema, svg
from localspec.bench.audit import Audit, Divergence
from localspec.bench.drawings import plots
from localspec.bench.outputs import WRITERS
from localspec.bench.report import to_json
from localspec.bench.runner import Status
from localspec.records import Counts

DRAFTED = Counts(20, 18, 20, 63, 54, 30, 54, (15, 10, 5), (18, 15, 10), lengths=(2, 0, 0, 18))
PICTURES = ("--html", "--svg", "--card")


def result_of(made, speeds, *, workloads=("chat8", "code9"), audit=None, n=8, **more):
    """Candidates called by their names, each so many times as fast as the baseline."""
    people = [made.candidate(), *(made.candidate(name, k) for name, k in speeds)]
    prompts = [made.prompt(f"{w}-{i}", w) for w in workloads for i in range(n)]
    rows = []
    for i, p in enumerate(prompts):
        for who, times in zip(people, (1.0, *speeds.values()), strict=True):
            counts = None if who.is_baseline else DRAFTED
            tps = 40 * times * (1 + (i * 7 % 5) / 100 * (not who.is_baseline))
            rows.append(made.row(who, p, made.generation(tps=tps, counts=counts)))
    audits = {c.key: audit or Audit(True, len(prompts), (), 512) for c in people[1:]}
    return made.result(rows, people, prompts, audits=audits, **more)


@pytest.fixture
def won(made):
    return result_of(made, {("mtp", 2): 1.3, ("mtp", 3): 1.5, ("ngram", 8): 0.8})


def words_of(picture):
    return " ".join(node.text or "" for node in ET.fromstring(picture).iter() if node.text)


def numbers(picture):
    """Every x of a shape, with what moves its group added."""

    def walk(node, dx):
        found = re.match(r"translate\(([\d.]+)", node.get("transform", ""))
        dx += float(found[1]) if found else 0
        for name in ("x", "x1", "x2", "cx"):
            if node.get(name) is not None:
                yield dx + float(node.get(name))
        for child in node:
            yield from walk(child, dx)

    return list(walk(ET.fromstring(picture), 0.0))


# ---- the card ---------------------------------------------------------------------------------


def test_the_card_says_what_was_measured_on_what_and_how_sure_it_is(won):
    card = WRITERS["--card"](won)
    said = words_of(card)
    best = max(won["candidates"], key=lambda c: c["speedup"])
    low, high = best["speedup_ci"]
    for words in (
        f"{best['speedup']:.2f}x",
        "as fast as without a drafter",
        f"95 % interval {low:.2f} to {high:.2f}",
        "mtp n=3",
        "demo",
        "Q4_1",
        "EPYC, 2 threads",
        "16 prompts (chat8, code9)",
        f"{best['accept_length']:.2f}",
        f"{best['reach_rate'][0]:.0%}",
        "identical",
    ):
        assert words in said
    assert svg.GREEN in card
    assert all(0 <= x <= 1200 for x in numbers(card))


def uneven(made):
    """Faster on three of four prompts, and on the one that takes the longest so much slower that
    all tokens / all time are fewer than the baseline's."""
    people = [made.candidate(), made.candidate("ngram", 2)]
    speeds = ((100, 130), (100, 130), (100, 130), (20, 15))
    prompts = [made.prompt(f"p{i}") for i in range(len(speeds))]
    rows = [
        made.row(who, p, made.generation(tps=tps))
        for p, both in zip(prompts, speeds, strict=True)
        for who, tps in zip(people, both, strict=True)
    ]
    return made.result(rows, people, prompts)


def test_the_bars_of_a_card_are_as_its_speedup_is(made):
    """1.13x stood over 427 tok/s and, below it, the drafter's 407."""
    result = uneven(made)
    plain, drafted = result["candidates"]
    assert drafted["speedup"] == pytest.approx(1.13, abs=0.01)
    assert drafted["decode_tps"] < plain["decode_tps"]
    card = WRITERS["--card"](result)
    bars = [float(w) for w in re.findall(r'<rect[^>]* width="([\d.]+)" height="22.0"', card)]
    tps = [float(words) for words in re.findall(r">([\d.]+) tok/s<", card)]
    for one, other in (bars, tps):
        assert other / one == pytest.approx(drafted["speedup"], rel=0.01)
    assert "geometric means over the prompts" in words_of(card)


@pytest.mark.parametrize("kind", ["--markdown", "--html"])
def test_a_speedup_that_is_visibly_not_the_quotient_is_explained_and_no_other(made, won, kind):
    told = "It need not be the quotient"
    assert told not in WRITERS[kind](won)
    written = WRITERS[kind](uneven(made))
    assert written.count(told) == 1
    assert "ngram n=2 has 1.13x where they give 0.89x" in written


def test_a_card_never_praises_what_was_not_shown(made):
    """Neither a slower drafter, nor no difference, nor a speed whose output is wrong."""
    wrong = Audit(False, 8, (Divergence("chat8", "chat8-1", 0, 5, "MISMATCH", 1.0, 0.1),))
    for speeds, more, words, colour in (
        ({("ngram", 8): 0.8}, {}, "slower than without", svg.RED),
        ({("ngram", 8): 0.98}, {}, "no difference shown", svg.SOFT),
        ({("ngram", 8): 1.5}, {"audit": wrong}, "OUTPUT DIFFERS", svg.RED),
        ({("ngram", 8): 1.5}, {"n": 1, "workloads": ("chat8",)}, "no verdict", svg.SOFT),
        ({}, {}, "no drafter was measured", svg.GREY),
    ):
        card = WRITERS["--card"](result_of(made, speeds, **more))
        assert words in words_of(card)
        assert "as fast as without" not in words_of(card)
        first_bar = re.findall(r'<rect[^>]*fill="([^"]+)"', card)[1]
        assert first_bar == colour
        assert colour == svg.GREEN or svg.GREEN not in card


def test_a_quick_or_unfinished_card_says_so(made):
    assert ", quick" in words_of(WRITERS["--card"](result_of(made, {("ngram", 8): 2}, quick=True)))
    cut = result_of(made, {("ngram", 8): 2}, interrupted=True)
    assert "INTERRUPTED" in words_of(WRITERS["--card"](cut))


def test_long_names_are_cut_not_run_over_the_edge(won):
    won["target"]["name"] = "an-organisation-with-a-name/" + "a-model-of-many-words-" * 6
    won["machine"]["cpu"] = "A processor " * 20
    card = WRITERS["--card"](won)
    widths = [
        svg.width_of(node.text, float(node.get("font-size")))
        for node in ET.fromstring(card).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert max(widths) <= 1200 - 2 * 64


# ---- plots ------------------------------------------------------------------------------------


def test_a_cut_name_keeps_what_tells_it_from_the_others(made):
    """Its drafter's own name among it: "ng... n=1 on kv=q8_0 T=0.8" was left of one."""
    long = "smollm2-135m-draft-q4_0-with-a-long-name-that-goes-on"
    for plot in plots(result_of(made, {(long, 3): 1.5, (long, 8): 1.2})):
        said = words_of(plot.svg)
        assert long not in said
        assert re.search(r"smol\S*…\S*goes-on( n=[38])?", said)
    assert svg.shortened_to(f"ngram n=1 on {long} T=0.8", 13, 186).startswith("ngram n=1 on s")
    swept = "ngram on kv=q8_0 T=0.8"
    for plot in plots(result_of(made, {(swept, 2): 1.5, (swept, 3): 1.2})):
        assert swept in words_of(plot.svg)


def test_no_two_lines_of_a_plot_look_the_same(made):
    """Four baselines were one grey, and the eighth drafter had the colour of the first."""
    drafters = [f"draft{i}" for i in range(30)]
    people = [made.candidate(temperature=t) for t in (0.0, 0.5, 0.8, 1.0)]
    people += [made.candidate(name, n) for name in drafters for n in (2, 3)]
    where = made.prompt("p")
    rows = [
        made.row(who, where, made.generation(tps=40 + i, counts=None if i < 4 else DRAFTED))
        for i, who in enumerate(people)
    ]
    found = {p.title.split()[0]: p for p in plots(made.result(rows, people, [where]))}
    for title, names in (("Decode", len(drafters) + 4), ("Drafts", len(drafters))):
        legend = ET.fromstring(found[title].svg)
        nodes = [node for node in legend.iter() if node.tag.endswith(("text", "line", "polyline"))]
        assert sum("T=" in (node.text or "") for node in nodes) == names
        looks, sample = [], []
        for node in legend.iter():
            kind = node.tag.rpartition("}")[2]
            if kind == "text" and "T=" in (node.text or ""):
                looks.append(tuple(sample))
            if kind in ("line", "text"):
                sample = []
            if kind in ("line", "polygon", "circle"):
                shape = [float(n) for n in re.findall(r"[\d.]+", node.get("points", ""))]
                corners = tuple(round(n - shape[i % 2], 1) for i, n in enumerate(shape))
                stroke = node.get("stroke"), node.get("stroke-dasharray"), node.get("fill")
                sample.append((kind, corners, *stroke))
        assert len(looks) == names
        assert len(set(looks)) == names
        heights = [float(n.get("y")) for n in nodes if "T=" in (n.text or "")]
        assert min(heights) > 30 and max(heights) < float(legend.get("height"))


def test_there_is_a_plot_of_each_thing_that_was_measured(won, made):
    assert [p.title.split()[0] for p in plots(won)] == ["Speedup", "Decode", "Drafts", "Where"]
    alone = plots(result_of(made, {}))
    assert [p.title for p in alone] == ["Where the milliseconds of a token go"]
    one_length = plots(result_of(made, {("mtp", 2): 1.3}))
    assert not any(p.title.startswith("Decode") for p in one_length)


def test_an_interval_is_drawn_where_it_lies(won):
    """Every interval over 1 lies right of the line at 1, the one below it left."""
    picture = ET.fromstring(plots(won)[0].svg)
    lines = list(picture.iter("{http://www.w3.org/2000/svg}line"))
    (one,) = [float(n.get("x1")) for n in lines if n.get("stroke") == svg.INK]
    ends = {
        colour: [
            (float(n.get("x1")), float(n.get("x2"))) for n in lines if n.get("stroke") == colour
        ]
        for colour in (svg.GREEN, svg.RED)
    }
    assert len(ends[svg.GREEN]) == 2
    assert len(ends[svg.RED]) == 1
    assert all(one < low < high for low, high in ends[svg.GREEN])
    assert all(low < high < one for low, high in ends[svg.RED])


def test_the_plots_are_one_picture_within_its_frame(won):
    picture = WRITERS["--svg"](won)
    assert all(0 <= x <= 860 for x in numbers(picture))
    assert "1.50x" in words_of(picture) or "1.5" in words_of(picture)
    assert "chat8" in words_of(picture)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (38, 66), (0, 0), (5, 5), (0.001, 0.002)])
def test_ticks_are_round_and_go_round_everything(low, high):
    found = svg.ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high
    assert 2 <= len(found) <= 9


# ---- the page ---------------------------------------------------------------------------------


def test_the_page_needs_nothing_else_and_has_everything(won):
    won["advice"] = [{"rule": 3, "text": "Found <this>.", "next": "Try that."}]
    page = WRITERS["--html"](won)
    assert not re.search(r'(src|href)="|@import|url\(', page)
    assert page.count("<svg") == 4
    style = page[page.index("<style>") : page.index("</style>")]
    assert svg.FONT in style
    assert "&" not in style, "what is escaped there is no style"
    for c in won["candidates"]:
        assert f"{c['decode_tps']:.1f}" in page
    assert "mtp n=3 is " in page
    assert "Found &lt;this&gt;. Try that." in page
    assert page.count("<tr><td>chat8-0</td>") == 4  # each candidate's run of it
    assert won["prompts"][0]["sha256"] in page
    assert "SHA-256" in page


def test_no_colour_of_the_page_or_its_plots_is_left_out_of_the_dark_scheme(won):
    """But the data's own, which are of middle lightness."""
    page = WRITERS["--html"](won)
    light, dark = page.split("prefers-color-scheme: dark", 1)
    used = set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]{6})"', page.split("<body>")[1]))
    left = used - set(svg.COLOURS) - {svg.GREY, "#0072b2", "#d55e00", "#cc79a7"}
    assert svg.INK in left
    assert svg.PAPER in left
    for colour in left:
        assert f'[fill="{colour}"]' in dark
    assert not re.search(r"color: *#|background: *#", light), "all by the names that dark changes"


def test_what_the_user_named_is_text_on_the_page_and_in_pictures(won):
    won["target"]["name"] = "<script>alert(1)</script>&"
    won["warnings"].append("<img src=x>")
    for kind in PICTURES:
        made = WRITERS[kind](won)
        assert "<script>" not in made
        assert "<img" not in made
        assert "&lt;script&gt;" in made


@pytest.mark.parametrize("kind", [*PICTURES, "--markdown"])
def test_nothing_measured_is_drawn_too(made, kind):
    people = [made.candidate(), made.candidate("ngram", 8)]
    status = {people[1].key: Status("crashed", "It died.")}
    empty = made.result([], people, [made.prompt("a")], status=status, interrupted=True)
    written = WRITERS[kind](empty)
    assert "nan" not in written.lower()
    if kind != "--markdown" and kind != "--html":
        ET.fromstring(written)


def test_markdown_says_which_files_and_settings(won):
    won["target"]["sha256"] = "ab" * 32
    written = WRITERS["--markdown"](won)
    assert f"`/m/t.gguf` (SHA-256 `{'ab' * 32}`)" in written
    assert "- n_ctx: 512" in written
    assert "- top_k: 40" in written


# ---- the schema -------------------------------------------------------------------------------


def test_the_schema_that_is_shipped_is_made_from_the_records():
    shipped = resources.files("localspec.bench").joinpath("result.schema.json")
    assert shipped.read_text(encoding="utf-8") == result_schema.text()


def test_results_are_as_the_schema_says_and_have_no_name_that_it_does_not_describe(won, made):
    cut = result_of(made, {("ngram", 8): 2}, interrupted=True)
    for result in (won, cut):
        result_schema.Result.model_validate_json(to_json(result), strict=True)
    won["rows"][0]["new"] = 1
    with pytest.raises(ValueError, match=r"rows\.0\.new"):
        result_schema.Result.model_validate_json(to_json(won), strict=True)


def test_readers_are_told_to_bear_new_names():
    assert '"additionalProperties": false' not in json.dumps(result_schema.schema())
