"""The Models screen against a Hub on the loopback: what each key does."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hub_server import HubServer
from patience import FOREVER
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static
from tiny_models import letter_vocabulary, tiny_llama
from tui.played import Player
from tui.talking import Chat, asked_and_held, steady, until

from localspec import catalog, cli, discovery, machine, resources
from localspec.catalogue_file import read_catalogue
from localspec.errors import UsageError
from localspec.hub import client
from localspec.hub.leftovers import leftovers
from localspec.models import output, own
from localspec.reference import hub_cache
from localspec.terms import TERMS
from localspec.tui.app import LocalspecApp
from localspec.tui.model_rows import GROUPS
from localspec.tui.screens.dialogs import Ask, Choose, Confirm
from localspec.tui.screens.first_start import FirstStartScreen
from localspec.tui.screens.model_dialogs import AddScreen, DraftersScreen, InspectScreen
from localspec.tui.screens.models import ModelsScreen
from localspec.tui.settings import SettingsStore
from localspec.tui.widgets.downloads import Downloads
from localspec.tui.widgets.footer import Footer
from localspec.tui.widgets.model_table import ModelTable
from localspec.units import file_size

REPO, DRAFTS = "me/m-GGUF", "me/drafts-GGUF"
MakeApp = Callable[..., LocalspecApp]


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("contents")
    target = tiny_llama(folder / "m.gguf", n_embd=64).read_bytes()
    return {
        "target": target,
        "large": tiny_llama(folder / "large.gguf", n_embd=96).read_bytes(),
        "draft": tiny_llama(folder / "draft.gguf", noise=0.2).read_bytes(),
        "stranger": tiny_llama(
            folder / "stranger.gguf", tokens=letter_vocabulary(first="p")
        ).read_bytes(),
    }


@pytest.fixture(autouse=True)
def shop(
    hub: HubServer,
    contents: dict[str, bytes],
    tmp_path: Path,
    tiny_target: Path,
    tiny_draft: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> HubServer:
    """A machine with one model on it, and a Hub with another in two sizes and its drafter."""
    for name in ("LLAMA_CACHE", "OLLAMA_MODELS"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(discovery, "_lm_studio_home", lambda home: tmp_path / "studio")
    monkeypatch.setattr(client, "BACKOFF", client.Backoff(attempts=1))
    free = machine.Memory(total=8 << 30, free=6 << 30)
    monkeypatch.setattr(machine, "memory", lambda devices=(): free)
    monkeypatch.setattr(output, "memory", lambda: free)
    monkeypatch.setattr("localspec.tui.screens.models.SIZES_SECONDS", FOREVER)
    own = tmp_path / "own" / "models.toml"
    monkeypatch.setattr(catalog, "user_file", lambda: own)
    hub.add(REPO, {"m-Q4_K_M.gguf": contents["target"], "m-Q8_0.gguf": contents["large"]})
    hub.add(DRAFTS, {"d-Q8_0.gguf": contents["draft"]})
    file = tmp_path / "models.toml"
    file.write_text(
        f"""
[models.here]
title = "The one that is here"
licence = "MIT"
source = {{ path = "{tiny_target}" }}
[models.here.drafters.small]
method = "draft-model"
source = {{ path = "{tiny_draft}" }}
note = "a small one"
[models.here.drafters.far]
method = "draft-model"
source = {{ repo = "{DRAFTS}", file = "d-Q8_0.gguf" }}
recommended = true

[models.far]
title = "The one on the Hub"
source = {{ repo = "{REPO}", files.Q4_K_M = "m-Q4_K_M.gguf", files.Q8_0 = "m-Q8_0.gguf", \
sizes.Q4_K_M = {len(contents["target"])}, sizes.Q8_0 = 20000000000 }}
[models.far.drafters.draft]
method = "draft-model"
source = {{ repo = "{DRAFTS}", file = "d-Q8_0.gguf" }}
recommended = true

[models.huge]
title = "Larger than this machine"
source = {{ repo = "me/huge-GGUF", file = "huge-Q8_0.gguf", size = 900000000000 }}
""",
        "utf-8",
    )
    monkeypatch.setattr(resources, "catalogue_file", lambda: file)
    return hub


class Shown:
    """The screen as a person sees it."""

    def __init__(self, app: LocalspecApp, pilot: Pilot[Any]) -> None:
        self.app, self.pilot = app, pilot
        self.press = pilot.press

    @classmethod
    async def opened(cls, pilot: Pilot[Any]) -> Shown:
        assert isinstance(pilot.app, LocalspecApp)
        await pilot.press("f2")
        self = cls(pilot.app, pilot)
        await self.until(lambda: self.screen._fits)
        return self

    @property
    def screen(self) -> ModelsScreen:
        screen = self.app.get_screen_stack("models")[0]
        assert isinstance(screen, ModelsScreen)
        return screen

    @property
    def table(self) -> ModelTable:
        return self.screen.query_one(ModelTable)

    async def until(self, holds: Callable[[], object]) -> None:
        await until(self.pilot, holds)

    async def dialog(self, kind: type) -> Any:
        await self.until(lambda: isinstance(self.app.screen, kind))
        await self.pilot.pause()
        return self.app.screen

    async def offered(self, title: str) -> None:
        """A list of that title is open, and filled."""
        await self.until(lambda: title in getattr(self.app.screen, "_title", ""))
        await self.until(lambda: self.app.screen.query(OptionList))
        await self.pilot.pause()

    async def bring(self, *titles: str) -> None:
        """Take what is offered first: of the quantisations and of the drafters."""
        for title in titles or ("which quantisation?", "its drafter"):
            await self.offered(title)
            await self.press("enter")

    async def choose(self, name: str) -> None:
        """Put the cursor on the line called ``name``."""
        await self.until(lambda: self.line(name))
        rows = [str(self.table.get_row_at(i)[0]).strip() for i in range(self.table.row_count)]
        self.table.move_cursor(row=rows.index(name))
        await self.pilot.pause()

    @property
    def text(self) -> str:
        rows = [self.table.get_row_at(i) for i in range(self.table.row_count)]
        return "\n".join("  ".join(str(cell or "") for cell in row).strip() for row in rows)

    def line(self, name: str) -> str:
        """What the table says of a model; empty where it is not shown."""
        found = [x for x in self.text.splitlines() if x.split("  ")[0] == name]
        return found[0] if found else ""

    @property
    def bars(self) -> str:
        return str(self.screen.query_one(Downloads).content)

    @property
    def notices(self) -> str:
        return "\n".join(f"{n.title} {n.message}" for n in self.app._notifications)


def options(screen: Any) -> list[str]:
    return [str(o.prompt) for o in screen.query_one(OptionList).options]


@pytest.fixture
def opened(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(LocalspecApp, "DEFAULT_MODE", "models")  # the chat is made when shown

    class Opened:
        def __init__(self, size: tuple[int, int] = (100, 24), **given: Any) -> None:
            self.app = make_app(**given)
            self.running = self.app.run_test(size=size)

        async def __aenter__(self) -> Shown:
            pilot = await self.running.__aenter__()
            shown = Shown(self.app, pilot)
            await shown.until(lambda: shown.screen._fits)
            await pilot.pause()
            return shown

        async def __aexit__(self, *error: Any) -> None:
            await self.running.__aexit__(*error)

    return Opened


# ---- the table -----------------------------------------------------------------------------------


async def test_models_stand_in_groups_whose_headings_the_cursor_steps_over(opened: Any) -> None:
    async with opened() as m:
        assert m.text.splitlines()[0] == "Ready on this machine"
        assert "To download" in m.text
        assert "✓ CPU" in m.line("here") and "✓ here" in m.line("here")
        assert "★far +2" in m.line("here")
        assert "✓ ~CPU" in m.line("far") and "✗ too large" in m.line("huge")
        await m.choose("here")
        assert "The one that is here · MIT" in str(m.screen.query_one("#note", Static).content)

        await m.press("home")  # the cursor steps over headings
        seen = [m.table.key]
        for _ in range(3):
            await m.press("down")
            seen.append(m.table.key)
        assert seen == ["entry here", "entry far", "entry huge", "entry huge"]
        await m.press("home")
        assert m.table.key == "entry here"


async def test_a_narrow_terminal_cuts_no_word_of_the_list_and_no_key(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened((80, 24)) as m:
        assert m.line("here").endswith("★far +2")
        await m.choose("far")
        monkeypatch.setattr(m.app.pulls, "_download", lambda pull: pull.cancel.wait())
        m.app.pulls.start("far", "Q4_K_M", entry="far")  # there is one key more
        for kept in (9_000_000_000, 250_300_000):
            row = replace(m.screen._rows["entry far"], kept=kept)
            m.table.state(row)
            at = [str(column.label) for column in m.table.columns.values()].index("state")
            cell = str(m.table.get_row("entry far")[at])
            assert cell.endswith("kept")
            assert len(cell) <= m.table.ordered_columns[at].width

        def keys() -> str:
            return str(m.app.screen.query_one(Footer).render()).partition("▏")[0]

        await m.until(lambda: "x Cancel" in keys())
        assert keys().rstrip().endswith("/ Filter"), "and not a part of the next"


@pytest.mark.parametrize("columns", [80, 100, 140])
async def test_the_headings_of_groups_are_whole(opened: Any, columns: int) -> None:
    async with opened((columns, 24)) as m:
        assert max(map(len, GROUPS)) <= m.table.ordered_columns[0].width


async def test_the_filter_shows_what_has_all_its_words_until_escape(opened: Any) -> None:
    async with opened() as m:
        await m.press("slash", *"hub draft")
        await m.pilot.pause()
        assert m.line("far") and not m.line("here") and not m.line("huge")
        await m.press(*" nowhere")
        await m.pilot.pause()
        note = m.screen.query_one("#note", Static)
        assert not m.text and str(note.content).startswith("Nothing has these words; Esc shows all")
        await m.press("enter")
        assert m.app.focused is m.table
        await m.press("escape")
        await m.pilot.pause()
        assert m.line("here") and m.line("huge")
        assert m.app.current_mode == "models"


# ---- downloads -----------------------------------------------------------------------------------


async def test_pull_offers_quantisations_and_brings_the_model_with_its_drafter(
    opened: Any, contents: dict[str, bytes]
) -> None:
    async with opened() as m:
        await m.choose("far")
        await m.press("p")
        lines = options(await m.dialog(Choose))
        assert "Q4_K_M" in lines[0] and "★ recommended" in lines[0] and "✓ ~CPU" in lines[0]
        assert "20.0 GB" in lines[1] and "✗ too large" in lines[1]
        await m.bring()
        await m.until(lambda: "✓ here" in m.line("far Q4_K_M"))
        stored = {p.name for p in hub_cache().rglob("*.gguf")}
        assert stored == {"m-Q4_K_M.gguf", "d-Q8_0.gguf"}
        await m.until(lambda: "far is here" in m.notices or "far:Q4_K_M is here" in m.notices)
        assert m.app.setup.model == "demo"  # that was chosen before, and p chooses nothing
        assert m.line("d-Q8_0")  # a drafter can be looked at and removed as well


async def test_a_download_shows_bars_survives_other_screens_and_is_cancelled_and_resumed(
    opened: Any, shop: HubServer, contents: dict[str, bytes]
) -> None:
    fault = shop.fail("/cdn/me/m-GGUF", hold_at=30_000)
    async with opened() as m:
        await m.choose("far")
        assert not m.screen._cancellable
        await m.press("p")
        await m.bring()
        await m.until(lambda: "m-Q4_K_M.gguf" in m.bars and "kB" in m.bars)
        await m.until(shop.held.is_set)
        await m.press("f6")
        await m.pilot.pause()
        assert m.app.current_mode == "history" and m.app.pulls.active
        await m.press("f2")
        await m.until(lambda: "─" in m.line("far") and "%" in m.line("far"))
        await m.press("x")
        await m.until(lambda: not m.app.pulls.active)
        await m.until(lambda: "kept" in m.line("far"))
        assert "cancelled, kept" in m.bars
        [part] = hub_cache().rglob("*.part")
        had = part.stat().st_size
        assert 0 < had < len(contents["target"])
        shop.release.set()
        fault.times = 0
        shop.forget()
        await m.choose("far")
        await m.press("p")  # no question a second time
        await m.until(lambda: "✓ here" in m.line("far Q4_K_M"))
        # what arrived is not asked for again (the request that was held may have brought a piece
        # more before it saw the cancel, or all of it)
        for request in shop.asked("/cdn/me/m-GGUF"):
            assert request.range and int(request.range.removeprefix("bytes=").rstrip("-")) >= had


async def test_keys_mean_the_download_that_was_added_and_its_line_says_all_of_it(
    opened: Any, shop: HubServer, contents: dict[str, bytes]
) -> None:
    shop.add("you/other-GGUF", {"other-Q8_0.gguf": contents["target"]})
    name = "hf:you/other-GGUF:Q8_0"

    def note() -> str:
        return str(m.screen.query_one("#note", Static).content)

    async with opened((140, 30)) as m:
        await m.choose("huge")
        await m.press("a")
        dialog = await m.dialog(AddScreen)
        dialog.query_one(Input).value = "you/other-GGUF"
        await m.press("enter")
        await m.until(lambda: options(dialog))
        fault = shop.fail("/cdn/you/other-GGUF", hold_at=30_000)
        await m.press("enter")
        await m.until(lambda: m.table.key == f"pull {name}")
        await m.until(shop.held.is_set)
        await m.until(lambda: "✓ ~CPU" in m.line(name))
        assert file_size(len(contents["target"])) in m.line(name)
        await m.until(lambda: note().startswith("on its way, x stops it: other-Q8_0.gguf"))
        await m.choose("huge")
        await m.press("x")
        await m.until(lambda: m.notices)
        assert "What arrived is kept; p on its line goes on from there." in m.notices
        assert m.table.key == f"pull {name}"
        await m.until(lambda: note().startswith("stopped, p goes on: other-Q8_0.gguf"))
        assert "✓ ~CPU" in m.line(name) and "..." not in m.text
        shop.release.set()
        fault.times = 0
        await m.press("p")
        await m.until(lambda: m.screen._row is not None and m.screen._row.kind == "file")
        assert (m.table.key or "").endswith("/other-Q8_0.gguf")


async def test_a_damaged_file_of_the_hub_is_said_to_be_so(
    opened: Any, shop: HubServer, contents: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    header = contents["target"][:24]
    shop.add("you/bad-GGUF", {"bad-Q8_0.gguf": header + b"\xff" * 5000})
    async with opened() as m:
        m.app.setup = replace(m.app.setup, model=None)
        await m.press("a")
        dialog = await m.dialog(AddScreen)
        dialog.query_one(Input).value = "you/bad-GGUF"
        await m.press("enter")
        await m.until(lambda: options(dialog))
        await m.press("enter")
        await m.until(lambda: m.notices)
        assert "hf:you/bad-GGUF:Q8_0 is here." not in m.notices
        assert "is here, but cannot be used: bad-Q8_0.gguf is damaged: " in m.notices
        assert "choose another file or repository. F2, then Del on it, removes it" in m.notices
        assert m.app.setup.model is None
        await m.until(lambda: m.screen._row is not None and m.screen._row.kind == "broken")
        note = m.screen.query_one("#note", Static)
        why = "hf:you/bad-GGUF/bad-Q8_0.gguf is damaged: a name in its"
        await m.until(lambda: str(note.content).startswith(why))
    with pytest.raises(SystemExit) as left:
        cli.main(["models", "pull", "hf:you/bad-GGUF:Q8_0"])
    assert left.value.code == 1
    assert "bad-Q8_0.gguf is damaged: " in " ".join(capsys.readouterr().err.split())


async def test_p_goes_on_with_what_was_begun_before_a_restart(
    opened: Any, shop: HubServer, contents: dict[str, bytes]
) -> None:
    from localspec.hub.files import prepare, resolve

    q4, q8 = sorted(resolve(REPO).files, key=lambda file: file.path)
    prepare([q4, q8])
    q8.part.write_bytes(contents["large"][:5000])
    async with opened() as m:
        await m.choose("far")
        await m.press("p")
        await m.offered("its drafter")
        assert "Q8_0" in m.app.screen._title
        await m.press("escape")
        q4.part.write_bytes(contents["target"][:3000])
        await m.press("p")
        await m.offered("which quantisation?")
        lines = options(m.app.screen)
        assert "‖ 3.0 kB kept" in lines[0] and "‖ 5.0 kB kept" in lines[1]
        await m.press("end", "enter")
        await m.bring("its drafter")
        await m.until(lambda: "✓ here" in m.line("far Q8_0"))
        [request] = shop.asked("/cdn/me/m-GGUF/m-Q8_0") or shop.asked("/cdn/me/m-GGUF")
        assert request.range.startswith("bytes=5000-")


@pytest.mark.parametrize(
    "words", ["/tmp/no/m.gguf", "./nope.gguf", "~/nope.gguf", "nope.gguf", "models/nope.gguf"]
)
async def test_a_file_that_is_not_there_is_no_question_to_the_hub(
    opened: Any, shop: HubServer, words: str
) -> None:
    async with opened() as m:
        await m.press("a")
        dialog = await m.dialog(AddScreen)
        dialog.query_one(Input).value = words
        await m.press("enter")
        said = dialog.query_one("#said", Static)
        await m.until(lambda: "There is no file" in str(said.content))
        assert str(Path(words).expanduser()) in str(said.content)
        assert not shop.asked("/api")


async def test_a_file_that_is_no_model_leaves_the_dialog_with_what_was_typed(
    opened: Any, tmp_path: Path, contents: dict[str, bytes]
) -> None:
    bad, good = tmp_path / "bad.gguf", tmp_path / "good.gguf"
    bad.touch()
    good.write_bytes(contents["large"])
    async with opened() as m:
        await m.press("a")
        dialog = await m.dialog(AddScreen)
        line, said = dialog.query_one(Input), dialog.query_one("#said", Static)
        line.value = str(bad)
        await m.press("enter")
        await m.until(lambda: "bad.gguf is" in str(said.content))
        assert m.app.screen is dialog and line.value == str(bad) and line.has_focus
        line.value = str(good)
        await m.press("enter")
        await m.until(lambda: m.app.screen is not dialog)
        await m.until(lambda: f"good is now in {catalog.user_file()}." in m.notices)
        own.forget("good")


async def test_what_an_interrupted_download_left_is_shown_after_a_restart_and_removed(
    opened: Any, shop: HubServer
) -> None:
    from localspec.hub.files import prepare, resolve

    file = resolve(REPO).files[0]
    prepare([file])
    file.part.write_bytes(b"x" * 5000)
    async with opened() as m:
        assert "5.0 kB kept" in m.line("far")
        await m.choose("far")
        await m.press("delete")
        dialog = await m.dialog(Confirm)
        assert "1 unfinished file of me/m-GGUF" in str(dialog.query_one(Static).content)
        await m.press("y")
        await m.until(lambda: "kept" not in m.line("far"))
        assert not list(hub_cache().rglob("*.part"))


@pytest.mark.parametrize("files", ["one", "split"])
async def test_a_download_that_the_catalogue_does_not_know_outlives_the_app(
    opened: Any,
    shop: HubServer,
    contents: dict[str, bytes],
    files: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = {
        "one": ["o-Q8_0.gguf"],
        "split": ["o-Q8_0-00001-of-00002.gguf", "o-Q8_0-00002-of-00002.gguf"],
    }[files]
    halves = {"one": [contents["target"]], "split": [contents["target"], b"the rest" * 9]}[files]
    shop.add("you/other-GGUF", dict(zip(names, halves, strict=True)))
    first = f"hf:you/other-GGUF/{names[0]}"
    fault = shop.fail(f"/cdn/you/other-GGUF/{names[0]}", hold_at=30_000)
    async with opened((80, 24)) as m:
        m.app.pulls.start("hf:you/other-GGUF:Q8_0")
        await m.until(shop.held.is_set)
        await m.until(
            lambda: len(list(hub_cache().rglob("*-00002-of-00002.gguf"))) == len(names) - 1
        )
    shop.release.set()
    while leftovers()[0].busy:  # a piece more may have come
        time.sleep(0.01)
    [part] = hub_cache().rglob("*.part")
    had = part.stat().st_size + (len(halves[1]) if files == "split" else 0)

    with pytest.raises(SystemExit):
        cli.main(["models", "list"])
    [told] = [x for x in capsys.readouterr().out.splitlines() if x.startswith("unfinished")]
    assert f"{first}, {file_size(had)} of {file_size(sum(map(len, halves)))} are here" in told
    assert f"models pull {first}; remove: localspec models rm {first}" in told

    async with opened((80, 24)) as m:
        await m.until(lambda: "Downloads from the Hub" in m.text)
        assert "Not usable" not in m.text
        await m.press("home", "down")
        line = m.text.splitlines()[m.table.cursor_row]
        note = str(m.screen.query_one("#note", Static).content)
        assert note.startswith(f"stopped, p goes on: {names[0]}")
        assert f"‖ {file_size(had)} kept" in line and "✓ ~CPU" in line
        await m.press("delete")
        dialog = await m.dialog(Confirm)
        assert f"This frees {file_size(had)}." in str(dialog.query_one(Static).content)
        await m.press("n")
        fault.times = 0
        shop.forget()
        await m.press("p")
        await m.until(lambda: m.screen._row is not None and m.screen._row.path is not None)
        assert "Downloads from the Hub" not in m.text
        assert sum(shop.sent.values()) <= sum(map(len, halves)) - had
        assert not list(hub_cache().rglob("*.begun"))


@pytest.mark.parametrize("words", ["", ":Q8_0", "/x-Q8_0-00002-of-00002.gguf", "the key"])
async def test_all_that_is_there_of_half_a_split_model_is_removed(
    opened: Any, shop: HubServer, contents: dict[str, bytes], words: str
) -> None:
    from localspec.hub.download import download
    from localspec.hub.files import resolve

    names = ["x-Q8_0-00001-of-00002.gguf", "x-Q8_0-00002-of-00002.gguf"]
    shop.add("big/split-GGUF", dict.fromkeys(names, contents["target"]) | {names[1]: b"2" * 5000})
    download(resolve("big/split-GGUF").files[1:])
    if words == "the key":
        async with opened() as m:
            await m.until(lambda: "‖ 5.0 kB kept" in m.text)
            await m.press("home", "down", "delete")
            await m.dialog(Confirm)
            await m.press("y")
            await m.until(lambda: "5.0 kB freed" in m.notices and "kept" not in m.text)
    else:
        with pytest.raises(SystemExit) as left:
            cli.main(["models", "rm", f"hf:big/split-GGUF{words}", "--yes"])
        assert not left.value.code
    assert not list(hub_cache().glob("models--big*"))


async def test_a_download_that_fails_says_why_and_can_be_tried_again(
    opened: Any, shop: HubServer
) -> None:
    shop.fail("/cdn/me/m-GGUF", status=503, times=9)
    async with opened() as m:
        await m.choose("far")
        await m.press("p")
        await m.bring()
        await m.until(lambda: "failed" in m.line("far"))
        await m.until(lambda: "503" in m.notices and "Try again later" in m.notices)
        shop.forget()
        await m.choose("far")
        await m.press("p")
        await m.until(lambda: "✓ here" in m.line("far Q4_K_M"))


async def test_the_first_model_that_arrives_is_chosen(opened: Any, settings: SettingsStore) -> None:
    async with opened() as m:
        m.app.setup = type(m.app.setup)()
        await m.choose("far")
        await m.press("p")
        await m.bring()
        await m.until(lambda: m.app.setup.model == "far:Q4_K_M")
        assert settings.values.model == "far:Q4_K_M"


# ---- use -----------------------------------------------------------------------------------------


async def test_enter_offers_the_drafters_recommended_first_and_uses_the_chosen_one(
    opened: Any,
) -> None:
    async with opened() as m:
        await m.choose("here")
        await m.press("enter")
        lines = options(await m.dialog(Choose))
        assert "far" in lines[0] and "★ recommended · to download" in lines[0]
        assert [line.split()[0] for line in lines] == ["far", "small", "ngram", "none", "more"]
        await m.press("down", "enter")
        await m.until(lambda: m.app.current_mode == "chat")
        assert (m.app.setup.model, m.app.setup.drafter) == ("here", "small")


async def test_a_drafter_that_is_absent_is_brought_and_then_used(opened: Any) -> None:
    async with opened() as m:
        await m.choose("here")
        await m.press("enter")
        await m.dialog(Choose)
        await m.press("enter")
        await m.until(lambda: m.app.setup.model == "here")
        assert m.app.setup.drafter == "far"
        assert [p.name for p in hub_cache().rglob("*.gguf")] == ["d-Q8_0.gguf"]


async def test_enter_on_a_model_that_is_not_here_downloads_and_then_uses_it(opened: Any) -> None:
    async with opened() as m:
        await m.choose("far")
        await m.press("enter")
        await m.bring()
        await m.until(lambda: m.app.setup.model == "far:Q4_K_M")


def with_a_second_drafter() -> None:
    """And one that needs no file."""
    file = resources.catalogue_file()
    more = f"""[models.far.drafters.other]
method = "draft-model"
source = {{ repo = "{DRAFTS}", file = "e-Q8_0.gguf", size = 4000 }}
note = "another one"
[models.far.drafters.own]
method = "mtp"

[models.huge]"""
    file.write_text(file.read_text("utf-8").replace("[models.huge]", more), "utf-8")


def two_drafters(contents: dict[str, bytes]) -> dict[str, bytes]:
    return {"d-Q8_0.gguf": contents["draft"], "e-Q8_0.gguf": contents["draft"] + bytes(96)}


async def asked_for_its_drafter(m: Any) -> None:
    """A model that is not here is chosen, and its quantisation."""
    await m.choose("far")
    await m.press("enter")
    await m.bring("which quantisation?")
    await m.offered("its drafter")


async def test_a_model_that_is_not_here_offers_its_drafters_with_their_sizes(
    opened: Any, shop: HubServer, contents: dict[str, bytes]
) -> None:
    with_a_second_drafter()
    shop.add(DRAFTS, two_drafters(contents))
    async with opened() as m:
        await asked_for_its_drafter(m)
        lines = options(m.app.screen)
        assert [line.split()[0] for line in lines] == [
            *("draft", "other", "own", "ngram", "all", "none")
        ]
        assert "★ recommended · 25.5 kB to download" in lines[0]  # the Hub says how large
        assert "4.0 kB to download · another one" in lines[1]  # the catalogue does
        assert "29.5 kB to download" in lines[4]
        await m.press("escape")
        await m.pilot.pause()
        assert not m.app.pulls.all

        await m.press("p")  # to use none of them yet
        await m.bring("which quantisation?")
        await m.offered("its drafter")
        shown = [line.split()[0] for line in options(m.app.screen)]
        assert shown == ["draft", "other", "all", "none"]
        await m.press("end", "enter")
        await m.until(lambda: "far:Q4_K_M is here" in m.notices)
        assert [p.name for p in hub_cache().rglob("*.gguf")] == ["m-Q4_K_M.gguf"]


@pytest.mark.parametrize(
    ("keys", "used", "names"),
    [
        (("down",), "other", {"e-Q8_0.gguf"}),
        (("up", "up"), "auto", {"d-Q8_0.gguf", "e-Q8_0.gguf"}),
        (("end",), "none", set()),
    ],
)
async def test_the_drafter_that_was_chosen_comes_along_and_is_used(
    opened: Any,
    shop: HubServer,
    contents: dict[str, bytes],
    keys: tuple[str, ...],
    used: str,
    names: set[str],
) -> None:
    with_a_second_drafter()
    shop.add(DRAFTS, two_drafters(contents))
    async with opened() as m:
        await asked_for_its_drafter(m)
        await m.press(*keys, "enter")
        await m.until(lambda: m.app.setup.model == "far:Q4_K_M")
        assert m.app.setup.drafter == used
        assert {p.name for p in hub_cache().rglob("*.gguf")} == {"m-Q4_K_M.gguf", *names}


async def test_a_model_that_is_chosen_later_stays_and_p_is_no_wish(
    opened: Any, shop: HubServer
) -> None:
    fault = shop.fail("/cdn/me/m-GGUF", hold_at=30_000)
    async with opened() as m:
        await m.choose("far")
        await m.press("enter")
        await m.bring()
        await m.until(shop.held.is_set)
        await m.choose("here")
        await m.press("enter")
        await m.dialog(Choose)
        await m.press("down", "enter")
        await m.until(lambda: m.app.setup.model == "here")
        fault.times = 0
        shop.release.set()
        await m.until(lambda: "far:Q4_K_M is here: Enter on it (F2) uses it." in m.notices)
        assert (m.app.setup.model, m.app.setup.drafter) == ("here", "small")

        await m.press("f2")
        await m.choose("far Q4_K_M")
        await m.press("delete")
        await m.dialog(Confirm)
        await m.press("y")
        await m.choose("far")
        m.app.clear_notifications()
        await m.press("p")
        await m.bring("which quantisation?")  # its drafter is here still
        await m.until(lambda: "far:Q4_K_M is here: Enter on it (F2) uses it." in m.notices)
        assert m.app.setup.model == "here"


async def test_enter_while_it_is_downloaded_is_a_wish_and_the_last_wish_counts(
    opened: Any, shop: HubServer
) -> None:
    faults = [shop.fail(f"/cdn/{repo}", hold_at=10_000) for repo in (REPO, DRAFTS)]
    async with opened() as m:
        await m.choose("here")
        await m.press("enter")  # with a drafter that is not here
        await m.dialog(Choose)
        await m.press("enter")
        await m.until(lambda: m.app.pulls.active)
        await m.choose("far")
        await m.press("p")
        await m.bring()
        await m.until(lambda: len(m.app.pulls.active) == 2)
        await m.choose("far")
        await m.press("enter")
        await m.until(lambda: "It is used once it is here" in m.notices)
        for fault in faults:
            fault.times = 0
        shop.release.set()
        await m.until(lambda: not m.app.pulls.active and m.app.setup.model != "demo")
        await m.until(lambda: "is here: Enter on here (F2) offers it." in m.notices)
        assert m.app.setup.model == "far:Q4_K_M"


# ---- add, inspect, drafters, remove --------------------------------------------------------------


async def test_add_takes_a_pasted_repo_or_address_and_lists_its_files_with_what_fits(
    opened: Any,
) -> None:
    async with opened() as m:
        await m.press("a")
        dialog = await m.dialog(AddScreen)
        for words in (REPO, f"https://huggingface.co/{REPO}"):
            dialog.query_one(OptionList).clear_options()
            dialog.query_one(Input).focus()
            dialog.query_one(Input).value = words
            await m.press("enter")
            await m.until(lambda: len(options(dialog)) == 2)
        assert "★" in options(dialog)[0] and "Q4_K_M" in options(dialog)[0]
        assert "✓ CPU" in options(dialog)[0] and "recommended" in options(dialog)[0]
        await m.press("enter")
        await m.until(lambda: "✓ here" in m.line("far Q4_K_M"))


async def test_add_searches_and_notes_a_model_in_the_catalogue_without_downloading(
    opened: Any, shop: HubServer, contents: dict[str, bytes]
) -> None:
    shop.add("you/other-GGUF", {"other-Q8_0.gguf": contents["target"]}, downloads=1234,
             tags=["gguf", "license:mit"])  # fmt: skip
    async with opened() as m:
        await m.press("a")
        dialog = await m.dialog(AddScreen)
        dialog.query_one(Input).value = "nothing like it"
        await m.press("enter")
        await m.until(lambda: "fewer words" in str(dialog.query_one("#said", Static).content))
        dialog.query_one(Input).value = "other"
        await m.press("enter")
        await m.until(lambda: options(dialog))
        assert str(dialog.query_one("#said", Static).content).startswith("1 repository, most")
        assert "you/other-GGUF" in options(dialog)[0] and "1,234 downloads" in options(dialog)[0]
        await m.press("enter")
        await m.until(lambda: "Q8_0" in options(dialog)[0])
        await m.press("c")
        await m.until(lambda: "other" in m.text)
        assert "other-q8_0" in read_catalogue(catalog.user_file()).models
        assert not list(hub_cache().rglob("*.gguf"))


async def test_the_files_go_with_the_words_that_they_were_of(
    opened: Any, shop: HubServer, contents: dict[str, bytes]
) -> None:
    shop.add("you/other-GGUF", {"o-Q8_0.gguf": contents["target"]}, tags=["gguf"])
    async with opened() as m:
        await m.press("a")
        dialog = await m.dialog(AddScreen)
        said = dialog.query_one("#said", Static)
        await m.press(*REPO, "enter")
        await m.until(lambda: options(dialog))
        await m.press("escape", "ctrl+u", *"no/such", "enter")
        await m.until(lambda: "has no no/such" in str(said.content))
        assert not options(dialog)
        await m.press("tab", "enter")
        await m.pilot.pause()
        assert m.app.screen is dialog and not m.app.pulls.all

        await m.press("shift+tab", "ctrl+u", *"other", "enter")
        await m.until(lambda: options(dialog))
        shop.fail("/api/models/you/other-GGUF", status=503)
        await m.press("enter")
        await m.until(lambda: "503" in str(said.content))
        assert "you/other-GGUF" in options(dialog)[0]  # that was searched for


async def test_a_second_file_of_a_name_is_asked_for_another(
    opened: Any, tmp_path: Path, contents: dict[str, bytes]
) -> None:
    first, second = tmp_path / "good.gguf", tmp_path / "more" / "good.gguf"
    second.parent.mkdir()
    for file in (first, second):
        file.write_bytes(contents["large"])
    own.add(str(first), ())
    async with opened() as m:
        await m.press("a")
        dialog = await m.dialog(AddScreen)
        dialog.query_one(Input).value = str(second)
        await m.press("enter")
        asked = await m.dialog(Ask)
        assert "has a model good already" in str(asked.query_one(Static).content)
        assert asked.query_one(Input).value == "good-2"
        await m.press("escape")
        await m.until(lambda: "was not noted" in str(dialog.query_one("#said", Static).content))
        await m.press("enter")
        await m.dialog(Ask)
        await m.press("ctrl+u", *"good", "enter")  # taken, still
        await m.until(lambda: m.app.screen is not asked)
        await m.dialog(Ask)
        await m.press("ctrl+u", *"fine", "enter")
        await m.until(lambda: "fine is now in" in m.notices)
    noted = read_catalogue(catalog.user_file()).models
    assert {name: entry.source.path for name, entry in noted.items()} == {
        "good": str(first),
        "fine": str(second),
    }
    for name in noted:
        own.forget(name)


async def test_files_of_one_quantisation_are_told_apart(
    opened: Any, shop: HubServer, contents: dict[str, bytes]
) -> None:
    names = ("o-Q4_K_M", "o-UD-Q4_K_M", "o-MTP-Q4_K_M", "eagle3-o-Q8_0", "mtp-o-Q8_0", "mtp-a-Q8_0")
    files = {f"{name}.gguf": contents["target"] for name in (*names, "mmproj-F16")}
    shop.add("you/other-GGUF", files, tags=["gguf"])
    async with opened() as m:
        await m.press("a")
        dialog = await m.dialog(AddScreen)
        dialog.query_one(Input).value = "you/other-GGUF"
        await m.press("enter")
        await m.until(lambda: len(options(dialog)) == len(names))
        shown = {line.replace("★", "").split()[0]: line for line in options(dialog)}
        assert "UD-Q4_K_M" in shown and ".gguf" not in shown["UD-Q4_K_M"]  # that says it
        for name in ("o-Q4_K_M", "o-MTP-Q4_K_M", "mtp-o-Q8_0", "mtp-a-Q8_0"):
            assert sum(f" {name}.gguf" in line for line in options(dialog)) == 1
        assert len(set(options(dialog))) == len(names)


async def test_add_says_why_words_are_no_path(opened: Any) -> None:
    async with opened() as m:
        await m.press("a")
        dialog = await m.dialog(AddScreen)
        field, said = dialog.query_one(Input), dialog.query_one("#said", Static)
        for words, why in (
            ("~nobody-at-all/x.gguf", "There is no home folder ~nobody-at-all"),
            ("~q", "There is no home folder ~q"),
            (f"{'w' * 300}.gguf", "File name too long"),
            ("a\0b.gguf", "NUL"),
            ("https://[", "is no address"),
        ):
            field.value = words
            await m.press("enter")
            await m.until(lambda why=why: why in str(said.content))
        field.value = "w" * 300  # may be words to search for
        await m.press("enter")
        await m.until(lambda: "is no address" not in str(said.content))


async def test_inspect_tells_of_a_file_here_and_of_one_on_the_hub(opened: Any) -> None:
    async with opened() as m:
        for name, fact in (("here", "12 tokens"), ("far", "hf:me/m-GGUF")):
            await m.choose(name)
            await m.press("i")
            told = (await m.dialog(InspectScreen)).query_one("#facts", Static)
            await m.until(lambda told=told, fact=fact: fact in text_of(told))
            assert "Fits in memory" in text_of(told)
            await m.until(lambda: " esc Close " in str(m.app.screen.query_one(Footer).render()))
            await m.press("escape")
            assert isinstance(m.app.screen, ModelsScreen)


def text_of(widget: Static) -> str:
    return "\n".join(widget.render_line(y).text for y in range(widget.size.height))


async def test_drafters_are_searched_on_the_hub_and_the_wrong_ones_say_why(
    opened: Any, shop: HubServer, contents: dict[str, bytes]
) -> None:
    shop.add("x/wrong-GGUF", {"w-eagle3-Q8_0.gguf": contents["stranger"]}, tags=["gguf"])
    async with opened() as m:
        await m.choose("here")
        await m.press("d")
        dialog = await m.dialog(DraftersScreen)
        await m.until(lambda: options(dialog))
        assert any("✓ me/drafts-GGUF/d-Q8_0.gguf" in line for line in options(dialog))
        await m.press("enter")
        await m.until(lambda: m.app.setup.model == "here")


async def test_without_the_hub_the_catalogues_drafters_of_a_model_are_shown(
    opened: Any, shop: HubServer
) -> None:
    async with opened() as m:
        shop.fail("/api", status=503, times=99)
        await m.choose("far")
        await m.press("d")
        dialog = await m.dialog(DraftersScreen)
        await m.until(lambda: options(dialog))
        assert options(dialog)[0].startswith("? me/drafts-GGUF/d-Q8_0.gguf ★")
        said = str(dialog.query_one("#said", Static).content)
        assert "the catalogue's, not checked: " in said and "503" in said
        assert "for the time when its model is here" in said
        await m.press("escape")
        await m.choose("huge")  # of which the catalogue knows none
        await m.press("d")
        dialog = await m.dialog(DraftersScreen)
        await m.until(lambda: "503" in str(dialog.query_one("#said", Static).content))
        assert not options(dialog)


async def test_remove_asks_first_and_frees_what_was_downloaded(opened: Any) -> None:
    async with opened() as m:
        await m.choose("far")
        await m.press("p")
        await m.bring()
        await m.until(lambda: m.line("far Q4_K_M"))
        await m.choose("far Q4_K_M")
        await m.press("delete")
        dialog = await m.dialog(Confirm)
        assert "hf:me/m-GGUF/m-Q4_K_M.gguf" in str(dialog.query_one(Static).content)
        await m.press("n")
        await m.pilot.pause()
        assert m.line("far Q4_K_M")
        await m.press("delete")
        await m.dialog(Confirm)
        await m.press("y")
        await m.until(lambda: m.line("far"))
        assert [p.name for p in hub_cache().rglob("*.gguf")] == ["d-Q8_0.gguf"]


async def test_what_is_in_use_is_removed_with_the_engine_that_has_it_open(
    opened: Any, settings: SettingsStore
) -> None:
    engine = Player("One.", "Two.")

    def question(screen: Any) -> str:
        return str(screen.query_one(Static).content)

    async with opened(launch=engine.launch) as m:
        chat = Chat(m.app, m.pilot)
        await m.choose("here")
        await m.press("enter")
        await m.dialog(Choose)
        await m.press("enter")  # with its drafter of the Hub
        await m.until(lambda: m.app.setup.drafter == "far")
        await m.press("f3")
        await chat.ask("x")
        assert engine.alive
        await m.press("f2")
        await m.choose("d-Q8_0")
        await m.press("delete")
        assert "It drafts for the model in use: the engine ends" in question(
            await m.dialog(Confirm)
        )
        await m.press("y")
        await m.until(lambda: "25.5 kB freed." in m.notices)
        assert not list(hub_cache().rglob("*.gguf"))
        assert (m.app.setup.model, m.app.setup.drafter) == ("here", "auto")
        await m.press("f3")
        await chat.ask("y")
        assert chat.answers == ["One.", "Two."] and "small" in chat.header

        await m.press("f2")
        await m.choose("far")
        await m.press("enter")
        await m.bring()
        await m.until(lambda: m.app.setup.model == "far:Q4_K_M" and m.line("far Q4_K_M"))
        await m.until(lambda: m.app.engine.status.state == "ready")
        await m.choose("far Q4_K_M")
        await m.press("delete")
        assert "It is the model in use: the engine ends" in question(await m.dialog(Confirm))
        assert engine.alive
        await m.press("y")
        await m.until(lambda: "66.1 kB freed." in m.notices)
        assert not engine.alive and m.app.engine.status.state == "off"
        assert m.app.setup.model is None and settings.values.model is None
        await m.until(lambda: "No model is chosen" in str(m.screen.query_one("#note").content))


async def test_what_is_at_work_is_not_removed(opened: Any) -> None:
    engine = Player("One two three.")
    async with opened(launch=engine.launch) as m:
        await m.choose("far")
        await m.press("enter")
        await m.bring()
        await m.until(lambda: m.app.setup.model == "far:Q4_K_M")
        engine.hold_after = 2
        await m.press("f3")
        await asked_and_held(Chat(m.app, m.pilot), engine)
        await m.press("f2")
        await m.choose("far Q4_K_M")
        await m.press("delete")
        await m.until(lambda: "stop it with Esc in Chat" in m.notices)
        assert not isinstance(m.app.screen, Confirm)
        engine.go_on.set()


async def test_what_no_download_brought_is_not_removed(opened: Any, tiny_target: Path) -> None:
    async with opened() as m:
        await m.choose("here")
        await m.press("delete")
        await m.until(lambda: "here does not come from Hugging Face" in m.notices)
        assert str(tiny_target) in m.notices
        assert not isinstance(m.app.screen, Confirm)
        assert tiny_target.is_file()


async def test_the_columns_and_the_signs_in_them_are_explained(opened: Any) -> None:
    async with opened() as m:
        columns = [str(column.label) for column in m.table.columns.values()]
        explained = {key: TERMS[key] for key in ModelsScreen.EXPLAINS}
        names = {term.name for term in explained.values()}
        assert {"size", "fits", "state", "drafters"} == names & set(columns)
        assert all(sign in explained["state"].means for sign in ("✓", "·", "‖", "✗", "to install"))


async def test_what_was_added_by_hand_leaves_the_catalogue_and_keeps_its_file(
    opened: Any, tmp_path: Path, contents: dict[str, bytes]
) -> None:
    mine = tmp_path / "kept" / "mine.gguf"
    mine.parent.mkdir()
    mine.write_bytes(contents["large"])
    own.add(str(mine), (), "mine")
    own.add(str(mine), (), "mine.2")
    before = catalog.user_file().read_text("utf-8")
    own.add(str(mine), (), "mine2")
    async with opened() as m:
        await m.choose("mine2")
        await m.press("delete")
        dialog = await m.dialog(Confirm)
        assert str(mine) in str(dialog.query_one(Static).content)
        await m.press("n")
        await m.pilot.pause()
        assert own.has("mine2")
        m.app.use(model="mine2")
        await m.press("delete")
        await m.dialog(Confirm)
        await m.press("y")
        await m.until(lambda: "no longer in" in m.notices)
        assert m.app.setup.model == str(mine)
    assert mine.is_file()
    assert catalog.user_file().read_text("utf-8").rstrip() == before.rstrip()
    own.forget("mine")
    assert list(read_catalogue(catalog.user_file()).models) == ["mine.2"]
    own.forget("mine.2")
    assert not read_catalogue(catalog.user_file()).models


def test_an_entry_written_in_another_way_is_left_to_its_writer(tiny_target: Path) -> None:
    file = catalog.user_file()
    file.parent.mkdir()
    text = f'[models]\nmine = {{ title = "M", source = {{ path = "{tiny_target}" }} }}\n'
    file.write_text(text)
    with pytest.raises(UsageError, match="in a way"):
        own.forget("mine")
    assert file.read_text() == text


# ---- the first start -----------------------------------------------------------------------------


async def test_the_first_start_offers_a_download_that_fits_and_shows_it(
    make_app: MakeApp, settings: SettingsStore, shop: HubServer
) -> None:
    settings.values.model = None
    file = resources.catalogue_file()
    text = file.read_text("utf-8")
    file.write_text(text[text.index("[models.far]") :], "utf-8")
    app = make_app()
    async with app.run_test(size=(100, 30)) as pilot:
        m = Shown(app, pilot)
        dialog = await m.dialog(FirstStartScreen)
        await m.until(lambda: len(options(dialog)) == 3)
        assert "Download far" in options(dialog)[2] and "fits this machine" in options(dialog)[2]
        await m.press("enter")  # the demo is no entry of this catalogue
        await m.until(lambda: "press Enter here again" in str(dialog.query_one("#said").content))
        await m.press("end", "enter")
        await m.until(lambda: app.current_mode == "models")
        await m.until(lambda: app.setup.model == "far:Q4_K_M")


@pytest.mark.parametrize("comes_along", [False, True])
async def test_what_comes_along_is_no_model_to_begin_with(
    make_app: MakeApp,
    settings: SettingsStore,
    shop: HubServer,
    tiny_target: Path,
    monkeypatch: pytest.MonkeyPatch,
    comes_along: bool,
) -> None:
    """demo-mtp is here in every installation, and talks nonsense."""
    settings.values.model = None
    if comes_along:
        monkeypatch.setattr(resources, "data_root", lambda: tiny_target.parent)
    app = make_app()
    async with app.run_test(size=(100, 30)) as pilot:
        m = Shown(app, pilot)
        if comes_along:
            await m.dialog(FirstStartScreen)
        else:
            await m.until(lambda: app.setup.model == "here")


async def test_where_the_demo_is_not_what_comes_along_is_offered_for_what_it_is(
    make_app: MakeApp,
    settings: SettingsStore,
    shop: HubServer,
    tiny_target: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.values.model = None
    monkeypatch.setattr(resources, "data_root", lambda: tiny_target.parent)
    file = resources.catalogue_file()
    text = file.read_text("utf-8")
    text = text[text.index("[models.far]") :]
    asset = f'\n[models.demo-mtp]\ntitle = "Tiny"\nsource = {{ asset = "{tiny_target}" }}\n'
    file.write_text(text + asset, "utf-8")
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        m = Shown(app, pilot)
        dialog = await m.dialog(FirstStartScreen)
        await m.until(lambda: any("demo-mtp" in line for line in options(dialog)))
        found = next(i for i, line in enumerate(options(dialog)) if "demo-mtp" in line)
        assert "its text makes no sense" in options(dialog)[found]
        await m.press(*["down"] * found, "enter")
        await m.until(lambda: app.setup.model == "demo-mtp")


# ---- what it looks like --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
def test_a_download_on_its_way(
    snap_compare: Any, make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:

    async def before(pilot: Pilot[Any]) -> None:
        from localspec.hub.download import FileProgress, Progress

        m = await Shown.opened(pilot)
        monkeypatch.setattr(m.app.pulls, "_download", lambda pull: pull.cancel.wait())
        pull = m.app.pulls.start("far", "Q4_K_M", entry="far")
        files = (
            FileProgress("m-Q4_K_M.gguf", 2_500_000_000, 1_525_000_000, 0, "downloading", 42e6),
            FileProgress("d-Q8_0.gguf", 600_000_000, 600_000_000, 120_000_000, "verifying"),
        )
        pull.progress, pull.state = Progress(files, 42e6), "downloading"
        m.screen._show_pulls()
        await m.until(lambda: "verifying" in m.bars)
        await m.until(lambda: m.screen._cancellable)
        await steady(pilot)

    assert snap_compare(make_app(), terminal_size=size, run_before=before)


LOOKS: dict[str, tuple[str, type, str]] = {
    "add": ("a", AddScreen, "Q8_0"),
    "inspect": ("i", InspectScreen, "Fits in memory"),
    "drafters": ("d", DraftersScreen, "d-Q8_0"),
    "pull": ("p", Choose, "Q8_0"),
}
"""Of each dialog its key, its class, and what it shows when it has found everything."""


@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
@pytest.mark.parametrize("which", LOOKS)
def test_what_the_dialogs_look_like(
    snap_compare: Any,
    make_app: MakeApp,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    which: str,
    size: tuple[int, int],
) -> None:
    key, kind, found = LOOKS[which]
    monkeypatch.setenv("HOME", str(tmp_path))

    async def before(pilot: Pilot[Any]) -> None:
        m = await Shown.opened(pilot)
        await m.choose("here" if which == "drafters" else "far")
        await m.press(key)
        dialog = await m.dialog(kind)
        if which == "add":
            dialog.query_one(Input).value = REPO
            await m.press("enter")
        await m.until(lambda: any(found in line for line in lines(m.app)))
        await steady(pilot)

    assert snap_compare(make_app(), terminal_size=size, run_before=before)


def lines(app: LocalspecApp) -> list[str]:
    return [strip.text for strip in app.screen._compositor.render_strips()]


@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
def test_what_the_first_start_looks_like(
    snap_compare: Any, make_app: MakeApp, settings: SettingsStore, size: tuple[int, int]
) -> None:
    settings.values.model = None
    file = resources.catalogue_file()
    text = file.read_text("utf-8")
    file.write_text(text[text.index("[models.far]") :], "utf-8")

    async def before(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, LocalspecApp)
        m = Shown(app, pilot)
        dialog = await m.dialog(FirstStartScreen)
        await m.until(lambda: len(options(dialog)) == 3)
        welcome = app.get_screen_stack("chat")[0].query_one("#welcome", Static)
        await m.until(lambda: "looking" not in str(welcome.content))
        await steady(pilot)

    assert snap_compare(make_app(), terminal_size=size, run_before=before)
