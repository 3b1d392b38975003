"""What travels between the rooms: settings, steps, spans, generations.

Plain frozen dataclasses; this module imports neither numpy nor llama_cpp. All times are seconds,
all rates tokens per second, unless the name says otherwise. The terms are those of DESIGN,
section 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

LLAMA_CPP_PYTHON = "0.3.36"
"""The one version whose unstable calls are known; pyproject.toml pins the same."""

StopReason = Literal["eog", "length", "stop", "context", "cancelled"]
FlashAttention = Literal["auto", "on", "off"]

SUSPECT_STEPS, SUSPECT_RATE = 50, 0.05
FULL_KV_TYPES = ("f16", "f32", "bf16")
"""A drafter's cache of any other type can cost most of the acceptance (llama.cpp #25725)."""
READER_BATCH = 64
"""Tokens of one pass over known text by a drafter that reads hidden states (EAGLE-3, DFlash). The
graphs of these compute logits for every token, wanted or not, so a longer pass takes memory (tokens
x vocabulary) and gains nothing."""
DraftLength = int | Literal["auto"]
"""The most tokens drafted a step; "auto": chosen anew for each step."""
ONE_PROMPT = "prompt"
"""Name of the workload that ``--prompt`` makes."""
TreeSize = int | Literal["auto"]
"""Nodes of a draft tree, 0: chains; "auto": chosen anew for each step."""


@dataclass(frozen=True, slots=True)
class SamplerSettings:
    """The whole sampler chain, in llama.cpp's order: penalties, top-k, top-p, min-p, temperature.

    ``temperature`` 0 is greedy (argmax after penalties). ``top_k`` 0, ``top_p`` 1, ``min_p`` 0,
    ``repeat_penalty`` 1, ``presence_penalty`` 0 and ``frequency_penalty`` 0 switch a stage off.
    """

    temperature: float = 0.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How model weights are loaded. ``gpu_layers`` -1 means all."""

    gpu_layers: int = -1
    draft_gpu_layers: int = -1
    n_cpu_moe: int = 0
    device: str = ""
    split: Literal["none", "layer", "row"] = "layer"
    mmap: bool = True
    check_tensors: bool = False


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """How a context is built.

    ``threads`` sets n_threads *and* n_threads_batch, on target and drafter.
    """

    n_ctx: int
    threads: int
    kv_type: str = "f16"
    draft_kv_type: str = "f16"
    flash_attn: FlashAttention = "auto"
    n_batch: int = 512


@dataclass(frozen=True, slots=True)
class DrafterSettings:
    """Which drafter, and how far it drafts.

    ``method`` is the family (``none``, ``ngram``, ``draft-model``, later ``mtp``, ``eagle3`` ...;
    ``ngram+FAMILY``: the n-gram drafter first and the other behind it), ``path`` the drafter's GGUF
    where the family needs one, ``n_max`` the most tokens drafted a step, ``p_min`` the drafter's
    top probability under which drafting stops *before* a token is taken (0 with trees, which have
    no part of it).
    ``tree``: nodes of a draft tree, ``n_max`` deep at the most (0: chains).
    ``auto`` chooses the length of each step's draft, or the nodes of its tree; ``n_max`` or
    ``tree`` is then the most that may be chosen.
    ``sampled`` lets a draft model draw its tokens at temperature > 0 (and keep ``q``) instead of
    taking its argmax.
    """

    method: str = "none"
    name: str = "none"
    path: str | None = None
    n_max: int = 0
    p_min: float = 0.0
    sampled: bool = False
    ngram_min: int = 2
    ngram_max: int = 4
    tree: int = 0
    auto: bool = False

    @property
    def draft_length(self) -> DraftLength:
        """``n_max`` as it is asked for and shown."""
        return "auto" if self.auto and not self.tree else self.n_max

    @property
    def tree_size(self) -> TreeSize:
        """``tree`` as it is asked for and shown."""
        return "auto" if self.auto and self.tree else self.tree

    @property
    def sources(self) -> tuple[str, ...]:
        """The families that draft, in the order in which they are tried (``Step.source``)."""
        return tuple(self.method.split("+"))


class Step(NamedTuple):
    """One decode step: a draft (possibly empty), its verification, what was kept.

    ``tokens`` counts what the step emitted (accepted + bonus or correction, cut at a stop);
    ``drafted`` is the depth submitted to verification (nodes apart in ``nodes``), ``accepted`` how
    many of them were kept. ``beta`` is the sum over evaluated draft positions of sum max(0, p - q),
    with ``beta_positions`` how many positions it sums over (0 where the draft was deterministic and
    the target greedy: then nothing is recorded). ``source`` says who drafted, where several may: an
    index into ``DrafterSettings.sources``.
    """

    tokens: int
    drafted: int
    accepted: int
    nodes: int
    target_calls: int
    t_draft: float
    t_verify: float
    t_accept: float
    t_rollback: float
    t_step: float
    beta: float = 0.0
    beta_positions: int = 0
    source: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of output text, valid UTF-8, and whether its tokens were drafted and accepted.

    ``tokens`` counts the tokens whose text ends in this span.
    """

    text: str
    drafted: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Integer counts of a run, from which every rate of DESIGN section 5 follows; sums add up.

    ``reached[i]``: steps whose first i+1 drafts were all accepted. ``offered[i]``: steps that
    drafted at least i+1 tokens and whose first i were all accepted. ``lengths[i]``: steps that
    drafted exactly i. Lists may differ in length.
    """

    steps: int = 0
    steps_with_draft: int = 0
    target_calls: int = 0
    decode_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    nodes: int = 0
    reached: tuple[int, ...] = ()
    offered: tuple[int, ...] = ()
    beta: float = 0.0
    beta_positions: int = 0
    lengths: tuple[int, ...] = ()

    def __add__(self, other: Counts) -> Counts:
        def add(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
            if len(a) < len(b):
                a, b = b, a
            return tuple(x + (b[i] if i < len(b) else 0) for i, x in enumerate(a))

        return Counts(
            self.steps + other.steps,
            self.steps_with_draft + other.steps_with_draft,
            self.target_calls + other.target_calls,
            self.decode_tokens + other.decode_tokens,
            self.drafted + other.drafted,
            self.accepted + other.accepted,
            self.nodes + other.nodes,
            add(self.reached, other.reached),
            add(self.offered, other.offered),
            self.beta + other.beta,
            self.beta_positions + other.beta_positions,
            add(self.lengths, other.lengths),
        )

    @property
    def hardly_accepted(self) -> bool:
        """Something must be wrong with the drafter: under 5 % accepted in 50 steps or more."""
        enough = self.steps_with_draft >= SUSPECT_STEPS and self.drafted > 0
        return enough and self.accepted < SUSPECT_RATE * self.drafted

    @property
    def replays(self) -> int:
        """Of the target calls those that decoded accepted tokens once more, after a draft was
        rejected that the memory could not simply drop; every other call is a step's."""
        return self.target_calls - self.steps

    @property
    def accept_length(self) -> float | None:
        """Tokens emitted by decode steps / target decode calls in them. 1.00 for the baseline."""
        return self.decode_tokens / self.target_calls if self.target_calls else None

    @property
    def accept_length_drafted(self) -> float | None:
        """1 + accepted / steps with a draft (llama-server's "mean len")."""
        return 1 + self.accepted / self.steps_with_draft if self.steps_with_draft else None

    @property
    def draft_coverage(self) -> float | None:
        return self.steps_with_draft / self.steps if self.steps else None

    @property
    def acceptance_rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None

    @property
    def reach_rate(self) -> list[float]:
        """Steps whose first i drafts were all accepted / steps with a draft, for i = 1, 2, ..."""
        return [r / self.steps_with_draft for r in self.reached] if self.steps_with_draft else []

    @property
    def conditional_rate(self) -> list[float | None]:
        """reached / offered by position; None where a position was never offered."""
        return [
            (self.reached[i] if i < len(self.reached) else 0) / n if n else None
            for i, n in enumerate(self.offered)
        ]

    @property
    def mean_beta(self) -> float | None:
        return self.beta / self.beta_positions if self.beta_positions else None


def count(steps: Sequence[Step]) -> Counts:
    """The integer counts of DESIGN section 5."""
    deepest = max((s.drafted for s in steps), default=-1)
    reached, offered = [0] * max(deepest, 0), [0] * max(deepest, 0)
    lengths = [0] * (deepest + 1)
    for s in steps:
        lengths[s.drafted] += 1
        for i in range(s.accepted):
            reached[i] += 1
        for i in range(min(s.accepted + 1, s.drafted)):
            offered[i] += 1
    return Counts(
        steps=len(steps),
        steps_with_draft=sum(1 for s in steps if s.drafted),
        target_calls=sum(s.target_calls for s in steps),
        decode_tokens=sum(s.tokens for s in steps),
        drafted=sum(s.drafted for s in steps),
        accepted=sum(s.accepted for s in steps),
        nodes=sum(s.nodes for s in steps),
        reached=tuple(reached),
        offered=tuple(offered),
        beta=sum(s.beta for s in steps),
        beta_positions=sum(s.beta_positions for s in steps),
        lengths=tuple(lengths),
    )


@dataclass(frozen=True, slots=True)
class DepthCosts:
    """Seconds that a step costs with ``depth`` tokens in the context, by the tokens that are
    drafted, from 0 on: the target's pass over them and the one before (``verify``), and what
    drafting them adds to a plain step (``draft``)."""

    depth: int
    verify: tuple[float, ...]
    draft: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Times:
    """Where a run's time went, in seconds; sums add up.

    ``ttft``: submit to the first token sampled, drafter's prefill included. ``decode``: time of the
    last token minus time of the first. ``end_to_end``: submit to the last token. The rest are sums
    over decode steps.
    """

    ttft: float = 0.0
    prefill: float = 0.0
    drafter_prefill: float = 0.0
    decode: float = 0.0
    end_to_end: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    accept: float = 0.0
    rollback: float = 0.0
    step: float = 0.0

    def __add__(self, other: Times) -> Times:
        return Times(
            *(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__)
        )

    @property
    def overhead(self) -> float:
        """Step time that is neither draft, verify nor rollback."""
        return self.step - (self.draft + self.verify + self.rollback)


class Scores(NamedTuple):
    """What target and drafter thought of one step's tokens.

    ``p[i]`` is the target's probability of drafted token i after the whole sampler (at temperature
    0: before the argmax is taken), None where its row was not evaluated; ``q[i]`` the drafter's, of
    a token drawn by chance after the sampler too, else by its own logits (None: it has none, as an
    n-gram has). ``emitted`` are the target's probabilities of the tokens that the step emitted,
    None where they were not asked for (``Generation.scored_by``).
    """

    p: tuple[float | None, ...]
    q: tuple[float | None, ...]
    emitted: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Generation:
    """What one run produced, with everything needed to report and to replay it.

    ``tokens`` are the generated ids, an end-of-generation token included (it is counted, but has no
    text). ``steps`` and ``drafts`` (the ids submitted with each step, rejected ones included) are
    there when the request asked for them, and so are the drafts' ``parents``, empty for a chain,
    and ``scores``, whose computing is in the times of the steps.
    """

    text: str
    tokens: tuple[int, ...]
    stop: StopReason
    prompt_tokens: int
    cached_tokens: int
    counts: Counts
    times: Times
    spans: tuple[Span, ...] = ()
    steps: tuple[Step, ...] = ()
    drafts: tuple[tuple[int, ...], ...] = ()
    parents: tuple[tuple[int, ...], ...] = ()
    scores: tuple[Scores, ...] = ()

    @property
    def decode_tps(self) -> float | None:
        """Tokens emitted by decode steps / (time of last token - time of first token)."""
        n = self.counts.decode_tokens
        return n / self.times.decode if n and self.times.decode > 0 else None

    @property
    def prefill_tps(self) -> float | None:
        """Evaluated prompt tokens / prefill time; cached tokens are not counted."""
        n = self.prompt_tokens - self.cached_tokens
        return n / self.times.prefill if n and self.times.prefill > 0 else None

    def scored_by(self, again: Generation) -> Generation:
        """This run with the scores of ``again``, the same made once more: steps, counts and times
        stay its own. None where the other one's text or drafts were others."""
        parted = _shared(self.tokens, again.tokens)
        emitted: dict[int, float | None] = {}
        known: dict[int, tuple[Scores, tuple[tuple[int, int], ...]]] = {}
        for (at, nodes), score in zip(again._drafted(), again.scores, strict=True):
            emitted |= {at + i: p for i, p in enumerate(score.emitted) if at + i < parted}
            if at <= parted:  # all before it is the same
                known[at] = score, nodes
        scores = []
        for step, (at, nodes) in zip(self.steps, self._drafted(), strict=True):
            score, others = known.get(at, (Scores((), (), ()), ()))
            n = _shared(nodes, others)
            rest: tuple[None, ...] = (None,) * (len(nodes) - n)
            of_step = tuple(emitted.get(at + i) for i in range(step.tokens))
            scores.append(Scores(score.p[:n] + rest, score.q[:n] + rest, of_step))
        return replace(self, scores=tuple(scores))

    def parts_from(self, other: Generation) -> int | None:
        """The first token that is another one than ``other``'s; None where one output is the
        beginning of the other."""
        same = _shared(self.tokens, other.tokens)
        return None if same == min(len(self.tokens), len(other.tokens)) else same

    def _drafted(self) -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
        """Of each step the index of its first token, and its draft's tokens with their parents."""
        at = 1  # the first token came from the prefill
        for step, tokens, parents in zip(self.steps, self.drafts, self.parents, strict=True):
            yield at, tuple(zip(tokens, parents or range(-1, len(tokens) - 1), strict=True))
            at += step.tokens


def _shared(one: Sequence[object], other: Sequence[object]) -> int:
    """How many items they both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What llama.cpp says of a loaded target."""

    path: str
    arch: str
    description: str
    quant: str
    size_bytes: int
    n_params: int
    n_ctx_train: int
    n_vocab: int
    n_layer: int
    template: str | None
    bos: str
    eos: str
    add_bos: bool
    special_tokens: tuple[str, ...]
    sampling: dict[str, float] = field(default_factory=dict)
    can_roll_back: bool = True


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """The llama.cpp build inside the engine process. ``missing``: calls that drafters need and it
    lacks."""

    llama_cpp_python: str
    llama_cpp: str
    backends: tuple[str, ...]
    devices: tuple[str, ...]
    system_info: str
    missing: tuple[str, ...] = ()


DeviceKind = Literal["cpu", "gpu", "igpu", "accel"]


@dataclass(frozen=True, slots=True)
class Device:
    """A device of llama.cpp's own list and its memory, in bytes, when it was asked.

    ``accel`` helps the processor (BLAS) and has no memory of its own; ``igpu`` uses the machine's.
    """

    name: str
    description: str
    kind: DeviceKind
    total: int
    free: int

    @property
    def shares_ram(self) -> bool:
        """Its memory is the machine's. Metal calls itself a GPU, which on today's Macs it is not:
        what it reports is the part of the one memory that it may use."""
        return self.kind == "igpu" or self.name.startswith(("MTL", "Metal"))


@dataclass(frozen=True, slots=True)
class Use:
    """Bytes that a model with its context takes on one device ("CPU": the machine's memory), by
    llama.cpp's own account: ``context`` is the KV cache and recurrent states."""

    device: str
    role: Literal["target", "drafter"]
    weights: int
    context: int
    compute: int


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The options every command shares, as the person gave them; None or "" is "not given".

    ``sampler`` holds only the sampler fields that were given (names of SamplerSettings); a command
    fills in the rest (the model's recommended sampling for run and chat, greedy for bench).
    """

    ctx: int | None = None
    threads: int | None = None
    load: LoadSettings = LoadSettings()
    kv_type: str = "f16"
    draft_kv_type: str = "f16"
    flash_attn: FlashAttention = "auto"
    sampler: dict[str, float] = field(default_factory=dict)
    thinking: bool | None = None
    log_file: str | None = None
    fit_check: bool = True


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What ``localspec bench`` was asked for. ``prompt`` "-" is stdin, read by the command line.

    ``depths``: each prompt is measured behind enough text to be so many tokens long; 0: as it is.
    ``runs`` None: one run a prompt, more where there are too few prompts for an interval.
    ``resume``: the file of an interrupted bench, whose options are taken where none are given here.
    ``fail_below``: the speedup that an interval must reach; ``fail_on_regression``: by which share
    (0.05 is 5 %) nothing may be slower than in the last comparable bench of the history.
    ``chains`` False: where there are ``trees``, these alone.
    ``cost_model``: measure the parts of a step too, and predict every draft length from them.
    ``quants``, ``kv_types``, ``flash_attns``, ``thread_counts``: where one has several, the grid of
    them is measured, the first of each being the reference; ``engine`` has those firsts.
    """

    model: str
    drafters: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    prompt: str | None = None
    depths: tuple[int, ...] = ()
    quick: bool = False
    n_max: tuple[DraftLength, ...] = ()
    p_min: float | None = None
    sampled: bool = False
    trees: tuple[TreeSize, ...] = ()
    chains: bool = True
    temperatures: tuple[float, ...] = ()
    max_tokens: int | None = None
    ignore_eos: bool = False
    runs: int | None = None
    system: str | None = None
    strict: bool = False
    quiet: bool = False
    json: str | None = None
    csv: str | None = None
    markdown: str | None = None
    html: str | None = None
    svg: str | None = None
    card: str | None = None
    resume: str | None = None
    save: bool = True
    fail_below: float | None = None
    fail_on_regression: float | None = None
    cost_model: bool = False
    quants: tuple[str, ...] = ()
    kv_types: tuple[str, ...] = ()
    flash_attns: tuple[FlashAttention, ...] = ()
    thread_counts: tuple[int, ...] = ()
    engine: EngineOptions = EngineOptions()


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What ``localspec chat`` and ``localspec run`` were asked for."""

    model: str
    drafter: str = "auto"
    n_max: DraftLength | None = None
    p_min: float | None = None
    sampled: bool = False
    tree: TreeSize = 0
    system: str | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    raw: bool = False
    quiet: bool = False
    engine: EngineOptions = EngineOptions()
