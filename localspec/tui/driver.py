"""The terminal, on Linux and macOS: Textual's driver, but for what ends the app or leaves the
terminal unusable behind it."""

from __future__ import annotations

import os
import selectors
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Any, cast

from textual import events
from textual.drivers.linux_driver import LinuxDriver

from localspec.streams import silence
from localspec.tui.pasting import PastingParser

if TYPE_CHECKING:
    from io import TextIOWrapper

READ_BYTES = 4096
LOOK_SECONDS = 0.1
"""How often it is asked whether input is wanted at all."""


class Parser(PastingParser):
    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        """None for a sequence that lost bytes on its way, where Textual takes any text for a
        number."""
        try:
            yield from super()._sequence_to_key_events(sequence, alt)
        except (ValueError, OverflowError):
            return


class Output:
    """The terminal's file, for Textual's writing thread. That ends at an error, and then whoever
    writes waits for ever behind its full queue, the event loop and the end of the app too: here
    what is written to a terminal that is gone goes nowhere, and ``gone`` is called once."""

    def __init__(self, file: IO[str], gone: Callable[[], object]) -> None:
        self._file, self._gone, self._is_gone = file, gone, False

    def write(self, text: str) -> None:
        self._unless_gone(lambda: self._file.write(text))

    def flush(self) -> None:
        self._unless_gone(self._file.flush)

    def _unless_gone(self, do: Callable[[], object]) -> None:
        if self._is_gone:
            return
        try:
            do()
        except OSError:
            self._is_gone = True
            silence(self._file)
            self._gone()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class TerminalDriver(LinuxDriver):
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        assert self._file is not None
        self._file = cast("TextIOWrapper", Output(self._file, self._end))

    def _end(self) -> None:
        def leave() -> None:
            if not self._app._exit:  # by a hang-up that was told, with its own exit code
                self._app.exit(return_code=1)

        self._app.call_later(leave)

    # ---- input --------------------------------------------------------------------------------

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except Exception as bug:  # noqa: BLE001  as in any other part of the app
            self._app.call_later(self._app._handle_exception, bug)

    def run_input_thread(self) -> None:
        """Whatever comes, the app goes on: Textual's own ends at a byte that is not UTF-8, and
        reads the end of a terminal that is gone for ever."""
        decode = getincrementaldecoder("utf-8")("replace").decode
        parser = Parser(self._debug)
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(LOOK_SECONDS):
                    try:
                        data = os.read(self.fileno, READ_BYTES)
                    except OSError:  # the terminal's end, where nobody hung up properly
                        data = b""
                    if not data:
                        self._end()
                        return
                    if text := decode(data):  # an empty one would end the parser
                        for message in parser.feed(text):
                            self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)

    # ---- stopped and continued ----------------------------------------------------------------

    def start_application_mode(self) -> None:
        """Also after a stop, when the terminal may still be as the app had set it: what it was at
        the first start is what a person gets back."""
        before = self.attrs_before
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.attrs_before = before or self.attrs_before

    def stop_application_mode(self) -> None:
        """With nothing on the app's screen: tmux puts lines that a taller window has brought above
        those of the shell, from the cursor up."""
        self.write("\x1b[H\x1b[J")
        super().stop_application_mode()

    def _sigtstp_application(self, *_signal: Any) -> None:
        # not in the midst of whatever writes to the terminal now: it holds that queue's lock
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(super()._sigtstp_application)

    def _sigcont_application(self, *_signal: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._continued)

    def _continued(self) -> None:
        reader = self._key_thread
        if not self._must_signal_resume:  # not by SIGTSTP: the app had no word in it
            if not (self._auto_restart and reader and reader.is_alive()):
                return
            self.exit_event.set()
            reader.join()
            self.exit_event.clear()
            self.write("\x1b[<u")  # the keyboard mode that the start sets once more
            self.close()
            self._must_signal_resume = True
        super()._sigcont_application()
