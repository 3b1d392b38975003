"""The Models screen against a Hub on the loopback: what each key does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hub_server import HubServer
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static
from tiny_models import letter_vocabulary, tiny_llama

from localspec import catalog, cli, discovery, machine, resources
from localspec.catalogue_file import read_catalogue
from localspec.errors import UsageError
from localspec.hub import client
from localspec.models import output, own
from localspec.reference import hub_cache
from localspec.tui.app import LocalspecApp
from localspec.tui.model_rows import GROUPS
from localspec.tui.screens.dialogs import Choose, Confirm
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
        for _ in range(2000):
            if holds():
                return
            await self.pilot.pause(0.02)
        raise AssertionError(f"never came: {holds.__code__.co_names}; shown:\n{self.text}")

    async def dialog(self, kind: type) -> Any:
        await self.until(lambda: isinstance(self.app.screen, kind))
        await self.pilot.pause()
        return self.app.screen

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
        def __init__(self, size: tuple[int, int] = (100, 24)) -> None:
            self.app = make_app()
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
        await m.press("enter")
        await m.until(lambda: "✓ here" in m.line("far Q4_K_M"))
        stored = {p.name for p in hub_cache().rglob("*.gguf")}
        assert stored == {"m-Q4_K_M.gguf", "d-Q8_0.gguf"}
        assert "far is here" in m.notices or "far:Q4_K_M is here" in m.notices
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
        await m.dialog(Choose)
        await m.press("enter")
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
        assert f"good is now in {catalog.user_file()}." in m.notices
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


async def test_a_download_that_fails_says_why_and_can_be_tried_again(
    opened: Any, shop: HubServer
) -> None:
    shop.fail("/cdn/me/m-GGUF", status=503, times=9)
    async with opened() as m:
        await m.choose("far")
        await m.press("p")
        await m.dialog(Choose)
        await m.press("enter")
        await m.until(lambda: "failed" in m.line("far"))
        assert "503" in m.notices and "Try again later" in m.notices
        shop.forget()
        await m.choose("far")
        await m.press("p")
        await m.until(lambda: "✓ here" in m.line("far Q4_K_M"))


async def test_the_first_model_that_arrives_is_chosen(opened: Any, settings: SettingsStore) -> None:
    async with opened() as m:
        m.app.setup = type(m.app.setup)()
        await m.choose("far")
        await m.press("p")
        await m.dialog(Choose)
        await m.press("enter")
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
        await m.dialog(Choose)
        await m.press("enter")
        await m.until(lambda: m.app.setup.model == "far:Q4_K_M")


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


async def test_inspect_tells_of_a_file_here_and_of_one_on_the_hub(opened: Any) -> None:
    async with opened() as m:
        for name, fact in (("here", "12 tokens"), ("far", "hf:me/m-GGUF")):
            await m.choose(name)
            await m.press("i")
            told = (await m.dialog(InspectScreen)).query_one("#facts", Static)
            await m.until(lambda told=told, fact=fact: fact in text_of(told))
            assert "Fits in memory" in text_of(told)
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


async def test_remove_asks_first_and_frees_what_was_downloaded(opened: Any) -> None:
    async with opened() as m:
        await m.choose("far")
        await m.press("p")
        await m.dialog(Choose)
        await m.press("enter")
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


async def test_what_no_download_brought_is_not_removed(opened: Any, tiny_target: Path) -> None:
    async with opened() as m:
        await m.choose("here")
        await m.press("delete")
        await m.until(lambda: m.notices)
        assert not isinstance(m.app.screen, Confirm)
        assert tiny_target.is_file()


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
        await m.press("delete")
        await m.dialog(Confirm)
        await m.press("y")
        await m.until(lambda: "no longer in" in m.notices)
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
        await asyncio.sleep(0.3)
        await pilot.pause()

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
        await pilot.pause(0.2)

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
        await pilot.pause(0.2)

    assert snap_compare(make_app(), terminal_size=size, run_before=before)
