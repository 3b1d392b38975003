"""What passes between the engine process and its caller: frames of msgpack, one struct each.

A frame is a 4-byte big-endian length and the msgpack of a tagged struct. Requests carry an ``id``
chosen by the caller; every answer and event repeats it. This module imports neither numpy nor
llama_cpp, so both sides may use it.
"""

from __future__ import annotations

import struct
from typing import IO

import msgspec

from localspec.records import (
    BuildInfo,
    ContextSettings,
    DepthCosts,
    Device,
    DrafterSettings,
    Generation,
    LoadSettings,
    ModelInfo,
    SamplerSettings,
    Span,
    Step,
    Use,
)


class Message(msgspec.Struct, tag=True, frozen=True):
    id: int


class Envelope(msgspec.Struct, frozen=True):
    """What can still be read of a request that is not understood."""

    id: int


# ---- requests -------------------------------------------------------------------------------


class Load(Message, frozen=True):
    """Load a target's weights (answer: Loaded). One target per engine process."""

    path: str
    settings: LoadSettings


class Open(Message, frozen=True):
    """Open a session: a target context with the needs of one drafter, and the drafter (Opened).

    ``copy_from`` names a session whose conversation state is copied in, so that the drafter can be
    switched between turns without a new prefill of the target.
    """

    session: str
    drafter: DrafterSettings
    context: ContextSettings
    copy_from: str | None = None


class Close(Message, frozen=True):
    """Free a session (answer: Ok)."""

    session: str


class Tokenize(Message, frozen=True):
    """Token ids of ``segments`` joined, each tokenised by itself with special tokens read (Tokens).

    A special token cannot form across a segment border: that is how user text is kept from forging
    one. Exactly one BOS comes first when the vocabulary wants one (``bos`` False: never).
    """

    segments: tuple[str, ...]
    bos: bool = True


class Pieces(Message, frozen=True):
    """What each of ``tokens`` adds to a text (Texts)."""

    tokens: tuple[int, ...]


class Generate(Message, frozen=True):
    """Run the one loop (events: Prefill, Chunk; answer: Finished).

    ``reuse`` keeps the longest common id prefix of what the session holds; without it the session
    starts from cleared memory, a fresh drafter state and a fresh n-gram index. ``record`` puts the
    steps and the submitted drafts into the Generation and makes a span of each token, ``scores``
    adds what target and drafter thought of them (which takes time in every step). ``interval`` is
    the least time between two Chunks, in seconds.
    """

    session: str
    prompt: tuple[int, ...]
    sampler: SamplerSettings
    max_tokens: int
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    reuse: bool = False
    record: bool = False
    interval: float = 0.05
    scores: bool = False


class Cancel(Message, frozen=True):
    """Stop the generation with this id within one step or prefill chunk, or the opening of a
    session within one decode (no answer of its own)."""


class Probe(Message, frozen=True):
    """Are rows of k-token batches bit-equal to rows decoded one by one, here (Probed)?"""

    session: str
    tokens: tuple[int, ...]
    sizes: tuple[int, ...]


class Replay(Message, frozen=True):
    """Replay the recorded batches of a run beside the plain path, which is fed the run's tokens
    (localspec.decoding.replay; answer: Replayed).

    ``tokens``, ``drafts`` with ``parents``, and ``kept`` (tokens emitted by each step) are the
    speculative run's; ``index`` is the first generated token at which it differs from the plain
    run, whose tokens up to there are the same (None: it does not, or is not compared).
    ``plain_session`` is a session without a drafter; ``sampled``: drafts were drawn by chance.
    """

    session: str
    plain_session: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    drafts: tuple[tuple[int, ...], ...]
    parents: tuple[tuple[int, ...], ...]
    kept: tuple[int, ...]
    index: int | None
    sampler: SamplerSettings
    ignore_eos: bool = False
    sampled: bool = False


class Rounding(Message, frozen=True):
    """How far do roundings alone take rows of this text apart, here (answer: Rounded)?"""

    session: str
    plain_session: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


class Costs(Message, frozen=True):
    """Measure what every draft length of a session costs, at so many tokens in the context each
    (answer: Costed)."""

    session: str
    depths: tuple[int, ...]


class Devices(Message, frozen=True):
    """llama.cpp's devices and their memory now (answer: Found)."""


class Measure(Message, frozen=True):
    """What this target, loaded so, would take with a session for this drafter (answer: Measured).

    llama.cpp simulates the allocations: nothing is loaded, and what is stays as it is.
    """

    path: str
    load: LoadSettings
    drafter: DrafterSettings
    context: ContextSettings


class MeasureSession(Message, frozen=True):
    """What an open session takes, its models' weights included (answer: Measured)."""

    session: str


# ---- answers and events ---------------------------------------------------------------------


class Ready(Message, frozen=True):
    """Sent once at the start, before any request is read."""

    build: BuildInfo


class Loaded(Message, frozen=True):
    model: ModelInfo


class Opened(Message, frozen=True):
    """``settings``: the values in effect, as llama.cpp reports them; ``notes``: for people."""

    session: str
    settings: dict[str, str | int | float | bool]
    notes: tuple[str, ...] = ()


class Ok(Message, frozen=True):
    pass


class Tokens(Message, frozen=True):
    tokens: tuple[int, ...]


class Texts(Message, frozen=True):
    """UTF-8; a character of several tokens is in parts."""

    texts: tuple[bytes, ...]


class Prefill(Message, frozen=True):
    """Prompt tokens evaluated so far, of ``total``; ``cached`` of them were reused."""

    done: int
    total: int
    cached: int


class Chunk(Message, frozen=True):
    """New text and steps since the last Chunk; ``t`` is engine time since submit, in seconds."""

    spans: tuple[Span, ...]
    steps: tuple[Step, ...]
    tokens: int
    t: float


class Finished(Message, frozen=True):
    generation: Generation


class Probed(Message, frozen=True):
    """Per batch size: were all rows bit-equal, and the largest absolute logit difference."""

    equal: dict[int, bool]
    max_difference: dict[int, float]


class Replayed(Message, frozen=True):
    """How a run looks on replay (localspec.decoding.replay).

    ``reproduced``: the replayed row at the divergence emits the recorded token. ``margin``: plain
    logit of the plain token minus that of the emitted one. ``max_difference``: largest |logit
    difference| between the two paths at that token.
    ``differences``: by generated token, how far the row that decided it lies from the plain one
    (root mean square over the vocabulary, less the mean). ``unlike``: the tokens that their rows do
    not emit. ``places``: of tokens of a sampled draft at temperature > 0, where they lie in their
    distributions (uniform on [0, 1] if they were drawn from them).
    """

    reproduced: bool
    margin: float
    max_difference: float
    differences: tuple[float, ...] = ()
    unlike: tuple[int, ...] = ()
    places: tuple[float, ...] = ()

    @property
    def verdict(self) -> str:
        """Of the divergence alone: near tie = reproduced and margin <= 2 * max_difference."""
        near = self.reproduced and self.margin <= 2 * self.max_difference
        return "near tie" if near else "MISMATCH"


class Rounded(Message, frozen=True):
    """``largest``: the largest of what Replayed calls differences that roundings alone make."""

    largest: float


class Costed(Message, frozen=True):
    costs: tuple[DepthCosts, ...]


class Found(Message, frozen=True):
    devices: tuple[Device, ...]


class Measured(Message, frozen=True):
    uses: tuple[Use, ...]


class Failed(Message, frozen=True):
    """The request could not be done; the engine lives on. ``kind``: a class of localspec.errors."""

    kind: str
    message: str
    hint: str = ""


Request = (
    Load
    | Open
    | Close
    | Tokenize
    | Pieces
    | Generate
    | Cancel
    | Probe
    | Replay
    | Rounding
    | Costs
    | Devices
    | Measure
    | MeasureSession
)
Answer = (
    Ready
    | Loaded
    | Opened
    | Ok
    | Tokens
    | Texts
    | Prefill
    | Chunk
    | Finished
    | Probed
    | Replayed
    | Rounded
    | Costed
    | Found
    | Measured
    | Failed
)

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_envelope = msgspec.msgpack.Decoder(Envelope).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode

_HEAD = struct.Struct(">I")


def frame(message: Message) -> bytes:
    """The bytes of one frame."""
    body = encode(message)
    return _HEAD.pack(len(body)) + body


def read_frame(stream: IO[bytes]) -> bytes | None:
    """The body of the next frame, or None at the end of the stream (also inside a frame)."""
    head = stream.read(_HEAD.size)
    if head is None or len(head) < _HEAD.size:
        return None
    (size,) = _HEAD.unpack(head)
    body = stream.read(size)
    return body if body is not None and len(body) == size else None
