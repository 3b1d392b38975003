"""The commands: each parses its words into an options record, calls one function, returns its code.

Bench and chat are imported inside their commands, so that help and completion stay quick.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

import typer

from localspec import __version__
from localspec.errors import LocalspecError, NotHere, UsageError
from localspec.limits import LONGEST_DRAFT, MOST_THREADS
from localspec.paths import kind_here, written
from localspec.records import (
    LLAMA_CPP_PYTHON,
    BenchOptions,
    ChatOptions,
    DraftLength,
    EngineOptions,
    FlashAttention,
    LoadSettings,
    TreeSize,
)

KvType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]

app = typer.Typer(
    name="localspec",
    help="Which speculative decoding setup, if any, makes this model faster on this machine?",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes cut option names at 80 columns
)
models = typer.Typer()
app.add_typer(models, name="models")
history = typer.Typer()
app.add_typer(history, name="history")
profiles = typer.Typer()
app.add_typer(profiles, name="profiles")


# ---- kinds of option values ------------------------------------------------------------------


def _finite(value: float | None) -> float | None:
    # "nan" and "inf" are floats to Python, and nan is within every range.
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


def _words(values: list[str] | None) -> tuple[str, ...]:
    """The items of comma lists, in order, each once. A file whose name has a comma stays whole."""
    items: dict[str, None] = {}
    for value in values or []:
        parts = [value] if kind_here(value) == "file" else value.split(",")
        items |= {part.strip(): None for part in parts if part.strip()}
    if values and not items:
        raise typer.BadParameter("the list is empty.")
    return tuple(items)


Number = TypeVar("Number", int, float)


def _numbers(
    values: list[str] | None, kind: type[Number], low: Number, high: Number
) -> tuple[Number, ...]:
    """The numbers of comma lists, in order, each once."""
    numbers: dict[Number, None] = {}
    for word in _words(values):
        try:
            number = kind(word)
        except ValueError:
            number = None
        if number is None or not low <= number <= high:
            what = "a whole number" if kind is int else "a number"
            raise typer.BadParameter(f"{word!r} is not {what} from {low} to {high}.")
        numbers[number] = None
    return tuple(numbers)


LARGEST_TREE = 1024
HIGHEST_TEMPERATURE = 100.0
DEEPEST = 10_000_000


def _numbers_or_auto(
    values: list[str] | None, low: int, high: int
) -> tuple[int | Literal["auto"], ...]:
    """The numbers of comma lists, of which some may be the word auto; each once."""
    found: dict[int | Literal["auto"], None] = {}
    for word in _words(values):
        found |= dict.fromkeys(("auto",) if word == "auto" else _numbers([word], int, low, high))
    return tuple(found)


def _draft_lengths(values: list[str] | None) -> tuple[DraftLength, ...]:
    return _numbers_or_auto(values, 1, LONGEST_DRAFT)


def _lengths(values: list[str] | None) -> list[str] | None:
    _draft_lengths(values)
    return values


def _length(value: str | None) -> str | None:
    if value is not None and len(_draft_lengths([value])) != 1:
        raise typer.BadParameter(f"{value!r} is no single number.")
    return value


def _draft_length(value: str | None) -> DraftLength | None:
    return None if value is None else _draft_lengths([value])[0]


def _tree_sizes(values: list[str] | None) -> tuple[TreeSize, ...]:
    return _numbers_or_auto(values, 1, LARGEST_TREE)


def _trees(values: list[str] | None) -> list[str] | None:
    _tree_sizes(values)
    return values


def _tree_size(value: str | None) -> TreeSize:
    """0 is none: chains."""
    return 0 if value is None else _numbers_or_auto([value], 0, LARGEST_TREE)[0]


def _tree(value: str | None) -> str | None:
    if value is not None and len(_numbers_or_auto([value], 0, LARGEST_TREE)) != 1:
        raise typer.BadParameter(f"{value!r} is no single number.")
    return value


def _choices(values: list[str] | None, allowed: Sequence[str]) -> tuple[str, ...]:
    """The words of comma lists, each one of ``allowed``."""
    words = _words(values)
    for word in words:
        if word not in allowed:
            raise typer.BadParameter(f"{word!r} is not one of {', '.join(allowed)}.")
    return words


def _kv_types(values: list[str] | None) -> list[str] | None:
    _choices(values, get_args(KvType))
    return values


def _flash_attns(values: list[str] | None) -> list[str] | None:
    _choices(values, get_args(FlashAttention))
    return values


def _thread_counts(values: list[str] | None) -> list[str] | None:
    _numbers(values, int, 1, MOST_THREADS)
    return values


def _depths(values: list[str] | None) -> tuple[int, ...]:
    """ "4k" is 4096."""
    found: dict[int, None] = {}
    for word in _words(values):
        digits, thousand = word.lower().removesuffix("k"), word.lower().endswith("k")
        if not digits.isdecimal() or int(digits) > DEEPEST:
            raise typer.BadParameter(f"{word!r} is no number of tokens such as 4096 or 4k.")
        found[int(digits) * (1024 if thousand else 1)] = None
    return tuple(found)


def _depths_given(values: list[str] | None) -> list[str] | None:
    _depths(values)
    return values


def _temperatures(values: list[str] | None) -> list[str] | None:
    _numbers(values, float, 0.0, HIGHEST_TEMPERATURE)
    return values


def _text_of(prompt: str | None, *, exact: bool = False, files: bool = False) -> str | None:
    """The text that a prompt option stands for: "-" is stdin, with ``files`` "@FILE" a file.

    The newline that ends a file or ``echo`` is no part of a question; ``exact`` keeps it.
    """
    if prompt == "-":
        if sys.stdin is None:
            raise UsageError("There is no stdin to read the prompt from.", "Give it as a word.")
        raw, name = sys.stdin.buffer.read(), "stdin"
    elif files and prompt is not None and prompt.startswith("@"):
        name = prompt[1:]
        try:
            raw = written(name).read_bytes()
        except OSError as error:
            raise UsageError(
                f"The prompt file {name!r} cannot be read: {error.strerror}.",
                "A prompt that starts with @ names a file; give other text on stdin.",
            ) from None
    else:
        return prompt
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"The prompt in {name} is not UTF-8 text (byte {error.start}).", "Save it as UTF-8."
        ) from None
    return text if exact else text.removesuffix("\n").removesuffix("\r")


# ---- options that every command shares -------------------------------------------------------


def _engine_options(
    ctx: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Context size in tokens. Default: the smallest that fits the work.",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_THREADS,
            help="Threads of target and drafter. Default: the physical performance cores.",
        ),
    ] = None,
    gpu_layers: Annotated[
        int,
        typer.Option(min=-1, help="Target layers on the GPU; -1: as many as fit."),
    ] = -1,
    draft_gpu_layers: Annotated[
        int,
        typer.Option(min=-1, help="Drafter layers on the GPU; -1: all."),
    ] = -1,
    n_cpu_moe: Annotated[
        int,
        typer.Option(min=0, help="Keep the experts of so many layers on the CPU."),
    ] = 0,
    device: Annotated[str, typer.Option(help="Device, by llama.cpp's name.")] = "",
    split: Annotated[
        Literal["none", "layer", "row"],
        typer.Option(help="How several GPUs share the target."),
    ] = "layer",
    kv_type: Annotated[KvType, typer.Option(help="KV cache type of the target.")] = "f16",
    draft_kv_type: Annotated[KvType, typer.Option(help="KV cache type of the drafter.")] = "f16",
    flash_attn: Annotated[
        Literal["auto", "on", "off"],
        typer.Option(help="Flash attention."),
    ] = "auto",
    mmap: Annotated[
        bool,
        typer.Option(
            "--mmap/--no-mmap",
            help="Map the model file instead of reading it into memory.",
        ),
    ] = True,
    check_tensors: Annotated[
        bool,
        typer.Option("--check-tensors", help="Look for damaged weights on loading."),
    ] = False,
    fit_check: Annotated[
        bool,
        typer.Option(
            "--fit-check/--no-fit-check",
            help="Refuse what does not fit the memory before it is loaded.",
        ),
    ] = True,
    log_file: Annotated[
        Path | None,
        typer.Option(help="Keep the engine's log in this file."),
    ] = None,
    thinking: Annotated[
        Literal["on", "off"] | None,
        typer.Option(help="Switch thinking where the template can."),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(min=0, help="Keep the K likeliest tokens; 0: all."),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            callback=_finite,
            help="Keep the likeliest tokens up to this probability; 1: all.",
        ),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            callback=_finite,
            help="Keep tokens of at least this share of the likeliest's probability; 0: all.",
        ),
    ] = None,
    repeat_penalty: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=100,
            callback=_finite,
            help="Penalty on tokens already seen; 1: none.",
        ),
    ] = None,
    repeat_last_n: Annotated[
        int | None,
        typer.Option(
            min=-1,
            help="Over how many last tokens; -1: the context.",
        ),
    ] = None,
    presence_penalty: Annotated[
        float | None,
        typer.Option(
            min=-100,
            max=100,
            callback=_finite,
            help="Taken off every token already seen.",
        ),
    ] = None,
    frequency_penalty: Annotated[
        float | None,
        typer.Option(
            min=-100,
            max=100,
            callback=_finite,
            help="Taken off per time seen.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**63 - 1,
            help="Same seed and settings, same tokens.",
        ),
    ] = None,
) -> EngineOptions:
    sampler = {
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repeat_penalty": repeat_penalty,
        "repeat_last_n": repeat_last_n,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
        "seed": seed,
    }
    return EngineOptions(
        ctx=ctx,
        threads=threads,
        load=LoadSettings(
            gpu_layers=gpu_layers,
            draft_gpu_layers=draft_gpu_layers,
            n_cpu_moe=n_cpu_moe,
            device=device,
            split=split,
            mmap=mmap,
            check_tensors=check_tensors,
        ),
        kv_type=kv_type,
        draft_kv_type=draft_kv_type,
        flash_attn=flash_attn,
        sampler={name: value for name, value in sampler.items() if value is not None},
        thinking=None if thinking is None else thinking == "on",
        log_file=None if log_file is None else str(log_file),
        fit_check=fit_check,
    )


def uses_engine(command: Callable[..., int]) -> Callable[..., None]:
    """Gives a command the shared options (as its parameter ``engine``) and its exit code an effect.

    Typer reads signatures; this one is the command's, less ``engine``, with the shared ones behind.
    A shared option that the command has in a form of its own is not asked for twice.
    """
    own = inspect.signature(command, eval_str=True).parameters
    every = inspect.signature(_engine_options, eval_str=True).parameters
    shared = {name: p for name, p in every.items() if name not in own}
    everything = {name: p for name, p in own.items() if name != "engine"} | shared

    @functools.wraps(command)
    def run(**given: Any) -> None:
        require_llama_cpp()
        engine = _engine_options(**{name: given.pop(name) for name in shared})
        try:
            raise typer.Exit(command(engine=engine, **given))
        except NotHere as error:
            if not error.open_choice:
                raise
            from localspec.models.hub_command import choice_explained

            raise choice_explained(error) from None

    run.__dict__["__signature__"] = inspect.Signature(
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in everything.values()]
    )
    run.__annotations__ = {name: p.annotation for name, p in everything.items()}
    return run


def require_llama_cpp() -> None:
    """Refuse another llama-cpp-python than the pinned one; asks the installed metadata only."""
    from importlib import metadata

    hint = f"Install it with: pip install 'llama-cpp-python=={LLAMA_CPP_PYTHON}'"
    try:
        installed = metadata.version("llama-cpp-python")
    except metadata.PackageNotFoundError:
        raise LocalspecError(
            f"llama-cpp-python is not installed; localspec needs {LLAMA_CPP_PYTHON}.", hint
        ) from None
    if installed.partition("+")[0] != LLAMA_CPP_PYTHON:  # behind "+" stands the build: +cu124
        raise LocalspecError(
            f"llama-cpp-python {installed} is installed; localspec uses calls that change between "
            f"versions and needs {LLAMA_CPP_PYTHON}.",
            hint,
        )


# ---- commands --------------------------------------------------------------------------------


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", is_eager=True)
    ] = False,
) -> None:
    if version:
        typer.echo(f"localspec {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@models.callback(invoke_without_command=True)
def catalogue(context: typer.Context) -> None:
    """The catalogue of models."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="Target: a catalogue name (NAME or NAME:QUANT), a GGUF's path, "
        "hf:OWNER/REPO[:QUANT|/FILE], or a name of `models list`.",
    ),
]
PMin = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        callback=_finite,
        help="Stop drafting a chain under this top probability of the drafter.",
    ),
]
Tree = Annotated[
    str | None,
    typer.Option(
        "--tree",
        metavar="NODES|auto",
        callback=_tree,
        help="Draft trees of so many nodes; auto: as many as pay, chosen anew for each step; 0: "
        "chains. Default: 0.",
    ),
]
Sampled = Annotated[
    bool,
    typer.Option(
        "--draft-sampling/--draft-argmax",
        help="At temperature > 0: draw the draft from the drafter's distribution, or take its "
        "argmax (then the text is the baseline's very text).",
    ),
]
System = Annotated[str | None, typer.Option(help="System prompt.")]
MaxTokens = Annotated[int | None, typer.Option(min=0, help="The most tokens of an answer.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Results only: no progress, no remarks.")
]
Drafter = Annotated[
    str | None,
    typer.Option(
        "--drafter",
        "-d",
        help="auto, none, ngram, a drafter of the target, or a GGUF; ngram+NAME: ngram first, the "
        "other behind it.",
        show_default=False,
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|auto",
        help="Draft as `localspec tune` found best: a profile's name; auto: the latest of this "
        "model. Other options win over it.",
    ),
]
NMax = Annotated[
    str | None,
    typer.Option(
        metavar="N|auto",
        callback=_length,
        help="The most tokens drafted a step; auto: as many as pay, chosen anew for each step.",
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=HIGHEST_TEMPERATURE,
        callback=_finite,
        help="0 is greedy. Default: what the model's makers recommend.",
    ),
]
Stop = Annotated[list[str] | None, typer.Option(help="End the answer at this text; repeatable.")]


AsJsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write the result as JSON, everything in it.")
]
AsCsv = Annotated[Path | None, typer.Option("--csv", help="Write the runs as CSV.")]
AsMarkdown = Annotated[Path | None, typer.Option(help="Write the tables as Markdown.")]
AsHtml = Annotated[Path | None, typer.Option(help="Write one HTML file with tables and plots.")]
AsSvg = Annotated[Path | None, typer.Option(help="Write the plots as SVG.")]
AsCard = Annotated[Path | None, typer.Option(help="Write a card to share, as SVG.")]


def _name(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _share(value: str | None) -> float | None:
    """ "5%" or "5" as 0.05."""
    return None if value is None else float(value.strip().removesuffix("%")) / 100


def _percent(value: str | None) -> str | None:
    try:
        share = _share(value)
    except ValueError:
        share = math.nan
    if share is not None and not 0 <= share < 1:
        raise typer.BadParameter(f"{value!r} is not a percentage from 0 to 99, such as 5%.")
    return value


FailOnRegression = Annotated[
    str | None,
    typer.Option(
        "--fail-on-regression",
        metavar="PERCENT",
        callback=_percent,
        help="Exit code 1 where tok/s or a speedup is shown to be lower by more than this, such as "
        "5%, than in the last benchmark of the same on this machine (compare: than in the first).",
    ),
]


def _with_temperature(engine: EngineOptions, temperature: float | None) -> EngineOptions:
    if temperature is None:
        return engine
    return replace(engine, sampler={**engine.sampler, "temperature": temperature})


Drafters = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter",
        "-d",
        metavar="NAME,...",
        help="Comma list: none, ngram, auto, all, a drafter of the target, a GGUF; ngram+NAME: "
        "ngram first, the other behind it. Default: all.",
    ),
]
Workloads = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        "-w",
        metavar="NAME,...",
        help="Comma list: chat8, code9 (both are the default), rewrite, summarise, json, "
        "reasoning, multilingual, long-context, speed-bench (from the Hub; also "
        "speed-bench:CATEGORY); or prompts of your own: a .txt (one a line), "
        ".jsonl or .json (prompts, OpenAI messages, a saved conversation), .md, a folder "
        "(in which each .txt is one prompt).",
    ),
]
OnePrompt = Annotated[
    str | None, typer.Option(help='Measure this prompt instead; "-" reads stdin.')
]
Depths = Annotated[
    list[str] | None,
    typer.Option(
        "--depth",
        metavar="TOKENS,...",
        callback=_depths_given,
        help="Comma list, such as 0,4k,16k: measure each prompt behind so much text too.",
    ),
]


@dataclass(frozen=True, slots=True)
class Chosen:
    """How to draft, by the options and the profile together."""

    drafter: str
    n_max: DraftLength | None
    p_min: float | None
    tree: TreeSize
    remarks: tuple[str, ...] = ()


def _drafting(
    model: str,
    engine: EngineOptions,
    profile: str | None,
    drafter: str | None,
    n_max: str | None,
    p_min: float | None,
    tree: str | None,
) -> Chosen:
    """Options that were given win over the profile; with another drafter nothing of it holds."""
    given = Chosen(drafter or "auto", _draft_length(n_max), p_min, _tree_size(tree))
    if profile is None:
        return given
    from localspec.catalog import resolve_target
    from localspec.tune.profiles import AUTO, of_target, pick, setup

    target = resolve_target(model)
    if drafter is not None:
        if profile == AUTO and not of_target(target)[0]:
            return given  # there is none to be told of
        pick(profile, target, model)
        return replace(given, remarks=(f"--drafter {drafter} is used, not the profile's drafter.",))
    found = setup(profile, target, model, engine)
    return Chosen(
        found.drafter,
        given.n_max or found.n_max,
        found.p_min if p_min is None else p_min,
        found.tree if tree is None else given.tree,
        found.remarks,
    )


def _without_effect(chosen: Chosen, p_min: float | None, *, sampled: bool) -> Chosen:
    """With a remark for each option that was given and decides nothing of a tree."""
    if not chosen.tree:
        return chosen
    from localspec.catalog import not_of_trees

    return replace(chosen, remarks=(*chosen.remarks, *not_of_trees(p_min, sampled=sampled)))


def _tell(chosen: Chosen, *, quiet: bool) -> None:
    if chosen.remarks and not quiet:
        from localspec.units import folded

        for remark in chosen.remarks:
            typer.echo(folded(f"note: {remark}", sys.stderr), err=True)


@app.command()
@uses_engine
def bench(
    engine: EngineOptions,
    model: Annotated[
        str, typer.Option("--model", "-m", help="Target: a catalogue name or the path of a GGUF.")
    ] = "",
    drafter: Drafters = None,
    workload: Workloads = None,
    prompt: OnePrompt = None,
    depth: Depths = None,
    quant: Annotated[
        list[str] | None,
        typer.Option(
            "--quant",
            metavar="QUANT,...",
            help="Comma list: quantisations of the target, such as Q4_K_M, or paths of its GGUFs. "
            "Several values, here and in the next three, are measured as a grid, in one table; the "
            "first ones are the reference.",
        ),
    ] = None,
    kv_type: Annotated[
        list[str] | None,
        typer.Option(
            "--kv-type",
            metavar="TYPE,...",
            callback=_kv_types,
            help=f"KV cache type of the target: {', '.join(get_args(KvType))}. Default: f16.",
        ),
    ] = None,
    flash_attn: Annotated[
        list[str] | None,
        typer.Option(
            "--flash-attn",
            metavar="WHEN,...",
            callback=_flash_attns,
            help="Flash attention: auto, on, off. Default: auto.",
        ),
    ] = None,
    threads: Annotated[
        list[str] | None,
        typer.Option(
            "--threads",
            metavar="N,...",
            callback=_thread_counts,
            help="Threads of target and drafter. Default: the physical performance cores.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="About one minute.")] = False,
    n_max: Annotated[
        list[str] | None,
        typer.Option(
            "--n-max",
            metavar="N,...",
            callback=_lengths,
            help="Comma list: the most tokens drafted a step; auto: as many as pay, chosen anew "
            "for each step.",
        ),
    ] = None,
    p_min: PMin = None,
    sampled: Sampled = False,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|auto",
            help="Measure the setup that `localspec tune` kept: a profile's name; auto: the latest "
            "of this model. Other options win over it.",
        ),
    ] = None,
    tree: Annotated[
        list[str] | None,
        typer.Option(
            "--tree",
            metavar="NODES,...",
            callback=_trees,
            help="Comma list: draft trees of so many nodes too, where the drafter proposes them; "
            "auto: as many as pay, chosen anew for each step.",
        ),
    ] = None,
    temperature: Annotated[
        list[str] | None,
        typer.Option(
            "--temperature",
            metavar="T,...",
            callback=_temperatures,
            help="Comma list; 0 is greedy. Default: 0.",
        ),
    ] = None,
    max_tokens: MaxTokens = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on to --max-tokens past the answer's end.")
    ] = False,
    runs: Annotated[
        int | None,
        typer.Option(min=1, help="Runs of each prompt. Default: 1, or 5 for a single prompt."),
    ] = None,
    system: System = None,
    cost_model: Annotated[
        bool,
        typer.Option(
            "--cost-model",
            help="Also measure what drafting and verifying cost, and predict every draft length.",
        ),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit code 1 when an output differs by more than rounding, or a row is refused.",
        ),
    ] = False,
    quiet: Quiet = False,
    json: AsJsonFile = None,
    csv: AsCsv = None,
    markdown: AsMarkdown = None,
    html: AsHtml = None,
    svg: AsSvg = None,
    card: AsCard = None,
    save: Annotated[
        bool, typer.Option("--save/--no-save", help="Keep the result in the history.")
    ] = True,
    fail_below: Annotated[
        float | None,
        typer.Option(
            min=0,
            callback=_finite,
            metavar="SPEEDUP",
            help="Exit code 1 unless a drafter's speedup (with several bases: one over the "
            "reference) reaches it with the lower end of its interval, such as 1.2.",
        ),
    ] = None,
    fail_on_regression: FailOnRegression = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Go on with an interrupted bench, as it was asked for; its file is rewritten.",
        ),
    ] = None,
) -> int:
    """Measure the target alone against the target with each drafter."""
    from localspec.bench.command import bench

    if not model and resume is None:
        raise UsageError("Missing option '--model' / '-m'.", "See `localspec bench --help`.")
    kv_types = _choices(kv_type, get_args(KvType))
    flash_attns = cast("tuple[FlashAttention, ...]", _choices(flash_attn, ("auto", "on", "off")))
    counts = _numbers(threads, int, 1, MOST_THREADS)
    engine = replace(
        engine,
        kv_type=kv_types[0] if kv_types else engine.kv_type,
        flash_attn=flash_attns[0] if flash_attns else engine.flash_attn,
        threads=counts[0] if counts else None,
    )
    drafters, lengths, trees, chains = (
        _words(drafter), _draft_lengths(n_max), _tree_sizes(tree), True
    )  # fmt: skip
    if profile is not None:
        chosen = _drafting(model, engine, profile, ",".join(drafters) or None, None, p_min, None)
        _tell(chosen, quiet=quiet)
        if not drafters:
            drafters, p_min = (chosen.drafter,), chosen.p_min
            lengths = lengths or ((chosen.n_max,) if chosen.n_max else ())
            if chosen.tree and not trees:
                trees, chains = (chosen.tree,), False
    return bench(
        BenchOptions(
            model=model,
            quants=_words(quant),
            kv_types=kv_types if len(kv_types) > 1 else (),
            flash_attns=flash_attns if len(flash_attns) > 1 else (),
            thread_counts=counts if len(counts) > 1 else (),
            drafters=drafters,
            workloads=_words(workload),
            prompt=_text_of(prompt),
            depths=_depths(depth),
            quick=quick,
            n_max=lengths,
            p_min=p_min,
            sampled=sampled,
            trees=trees,
            chains=chains,
            temperatures=_numbers(temperature, float, 0.0, HIGHEST_TEMPERATURE),
            max_tokens=max_tokens,
            ignore_eos=ignore_eos,
            runs=runs,
            system=system,
            strict=strict,
            cost_model=cost_model,
            quiet=quiet,
            json=_name(json),
            csv=_name(csv),
            markdown=_name(markdown),
            html=_name(html),
            svg=_name(svg),
            card=_name(card),
            save=save,
            fail_below=fail_below,
            fail_on_regression=_share(fail_on_regression),
            resume=None if resume is None else str(resume),
            engine=engine,
        )
    )


@app.command()
@uses_engine
def tune(
    model: Model,
    engine: EngineOptions,
    minutes: Annotated[
        float,
        typer.Option(
            min=0.1, max=24 * 60, callback=_finite, help="How long it may take, without loading."
        ),
    ] = 3.0,
    drafter: Drafters = None,
    workload: Workloads = None,
    prompt: OnePrompt = None,
    depth: Depths = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0, max=HIGHEST_TEMPERATURE, callback=_finite, help="Default: 0, which is greedy."
        ),
    ] = None,
    max_tokens: MaxTokens = None,
    system: System = None,
    name: Annotated[
        str | None, typer.Option(help="The profile's name. Default: of model and workload.")
    ] = None,
    save: Annotated[
        bool, typer.Option("--save/--no-save", help="Keep profile and history.")
    ] = True,
    json: AsJsonFile = None,
    quiet: Quiet = False,
) -> int:
    """Find the fastest drafter and draft length. In minutes that you set; kept as a profile."""
    from localspec.tune.command import TuneOptions, tune

    options = BenchOptions(
        model=model,
        drafters=_words(drafter),
        workloads=_words(workload),
        prompt=_text_of(prompt),
        depths=_depths(depth),
        temperatures=() if temperature is None else (temperature,),
        max_tokens=max_tokens,
        system=system,
        quiet=quiet,
        json=_name(json),
        engine=engine,
    )
    return tune(TuneOptions(options, minutes, name, save))


@app.command()
@uses_engine
def run(
    model: Model,
    engine: EngineOptions,
    prompt: Annotated[
        str | None,
        typer.Argument(help='The prompt, "@FILE", or "-" for stdin (also when left out).'),
    ] = None,
    profile: Profile = None,
    drafter: Drafter = None,
    n_max: NMax = None,
    p_min: PMin = None,
    sampled: Sampled = False,
    tree: Tree = None,
    temperature: Temperature = None,
    system: System = None,
    max_tokens: MaxTokens = None,
    stop: Stop = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="The prompt is text to go on with: no chat template.")
    ] = False,
    quiet: Quiet = False,
) -> int:
    """Answer one prompt: the text on stdout, the statistics on stderr."""
    from localspec.chat.command import run

    if prompt is None and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError("There is no prompt.", 'Give it as a word, as "@FILE", or on stdin.')
    chosen = _drafting(model, engine, profile, drafter, n_max, p_min, tree)
    _tell(_without_effect(chosen, p_min, sampled=sampled), quiet=quiet)
    return run(
        ChatOptions(
            model=model,
            drafter=chosen.drafter,
            n_max=chosen.n_max,
            p_min=chosen.p_min,
            sampled=sampled,
            tree=chosen.tree,
            system=system,
            max_tokens=max_tokens,
            stop=tuple(stop or ()),
            raw=raw,
            quiet=quiet,
            engine=_with_temperature(engine, temperature),
        ),
        _text_of("-" if prompt is None else prompt, exact=raw, files=True) or "",
    )


@app.command()
@uses_engine
def chat(
    model: Model,
    engine: EngineOptions,
    profile: Profile = None,
    drafter: Drafter = None,
    n_max: NMax = None,
    p_min: PMin = None,
    sampled: Sampled = False,
    tree: Tree = None,
    temperature: Temperature = None,
    system: System = None,
    max_tokens: MaxTokens = None,
    stop: Stop = None,
    quiet: Quiet = False,
) -> int:
    """Chat, line by line; /help lists what can be switched in between."""
    from localspec import interrupts
    from localspec.chat.command import chat

    interrupts.each()
    chosen = _drafting(model, engine, profile, drafter, n_max, p_min, tree)
    _tell(_without_effect(chosen, p_min, sampled=sampled), quiet=quiet)
    return chat(
        ChatOptions(
            model=model,
            drafter=chosen.drafter,
            n_max=chosen.n_max,
            p_min=chosen.p_min,
            sampled=sampled,
            tree=chosen.tree,
            system=system,
            max_tokens=max_tokens,
            stop=tuple(stop or ()),
            quiet=quiet,
            engine=_with_temperature(engine, temperature),
        )
    )


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@history.callback(invoke_without_command=True)
def list_history(
    context: typer.Context,
    find: Annotated[
        list[str] | None,
        typer.Option(
            "--filter", "-f", metavar="WORD", help="Only what has this in it; repeatable."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, the latest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Past benchmarks."""
    from localspec.bench.history_command import list_history

    if context.invoked_subcommand is None:
        raise typer.Exit(list_history(find or [], limit, as_json=as_json))


@profiles.callback(invoke_without_command=True)
def list_profiles(context: typer.Context, as_json: AsJson = False) -> None:
    """What `localspec tune` found and kept."""
    from localspec.tune.profiles_command import list_profiles

    if context.invoked_subcommand is None:
        raise typer.Exit(list_profiles(as_json=as_json))


OneProfile = Annotated[
    str, typer.Argument(metavar="NAME", help="As `localspec profiles` lists it.")
]


@profiles.command("show")
def show_profile(name: OneProfile) -> None:
    """A profile's file, and what it says."""
    from localspec.tune.profiles_command import show

    raise typer.Exit(show(name))


@profiles.command("rm")
def remove_profile(name: OneProfile) -> None:
    """Remove a profile."""
    from localspec.tune.profiles_command import remove

    raise typer.Exit(remove(name))


_PAST = "A number of `history`, last, or a file of bench --json."
PastBench = Annotated[str, typer.Argument(metavar="BENCH", help=_PAST)]


@history.command("show")
def show_bench(
    bench: PastBench,
    json: AsJsonFile = None,
    csv: AsCsv = None,
    markdown: AsMarkdown = None,
    html: AsHtml = None,
    svg: AsSvg = None,
    card: AsCard = None,
) -> None:
    """The tables of a past benchmark, or files of it."""
    from localspec.bench.history_command import show
    from localspec.bench.outputs import given

    outputs = {
        "json": json,
        "csv": csv,
        "markdown": markdown,
        "html": html,
        "svg": svg,
        "card": card,
    }
    named = {option: _name(path) for option, path in outputs.items()}
    raise typer.Exit(show(bench, given(**named)))


@history.command("rm")
def remove_bench(
    numbers: Annotated[list[int], typer.Argument(metavar="NUMBER...")],
) -> None:
    """Remove benchmarks from the history."""
    from localspec.bench.history_command import remove

    raise typer.Exit(remove(numbers))


@app.command()
def compare(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help=_PAST)],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="Likewise.")],
    fail_on_regression: FailOnRegression = None,
    as_json: AsJson = False,
) -> None:
    """What became faster or slower from one benchmark to another, prompt by prompt."""
    from localspec.bench.history_command import compare

    raise typer.Exit(compare(before, after, _share(fail_on_regression), as_json=as_json))


@app.command()
@uses_engine
def export(
    engine: EngineOptions,
    model: Annotated[
        str, typer.Option("--model", "-m", help="Target, as for bench and chat.")
    ] = "",
    profile: Profile = None,
    drafter: Drafter = None,
    n_max: NMax = None,
    p_min: PMin = None,
    tree: Tree = None,
    temperature: Temperature = None,
    bench: Annotated[
        str | None,
        typer.Option(metavar="BENCH", help=f"The winner of a past benchmark instead: {_PAST}"),
    ] = None,
    how: Annotated[
        Literal["command", "preset", "json"],
        typer.Option(
            "--format",
            help="A command line, an INI for llama-server --models-preset, or JSON.",
        ),
    ] = "command",
) -> int:
    """The same setup for llama-server."""
    from localspec.models.export import export, make_setup, of_bench

    engine = _with_temperature(engine, temperature)
    if bench is not None:
        others = {
            "--model": model or None, "--profile": profile, "--drafter": drafter,
            "--n-max": n_max, "--p-min": p_min, "--tree": tree,
        }  # fmt: skip
        for other in (name for name, given in others.items() if given is not None):
            raise UsageError(f"{other} and --bench exclude each other.", "Give one of the two.")
        return export(of_bench(bench, engine), how)
    if not model:
        raise UsageError("Missing option '--model' / '-m'.", "See `localspec export --help`.")
    chosen = _drafting(model, engine, profile, drafter, n_max, p_min, tree)
    setup = make_setup(
        model,
        chosen.drafter,
        engine,
        n_max=chosen.n_max,
        p_min=chosen.p_min,
        tree=chosen.tree,
        notes=chosen.remarks,
    )
    return export(setup, how)


@app.command()
def doctor(
    as_json: AsJson = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the Hub.")] = False,
    self_test: Annotated[
        bool,
        typer.Option("--self-test/--no-self-test", help="Run the demo model, ten seconds or so."),
    ] = True,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.zip", help="Write a bundle for a bug report, without secrets."),
    ] = None,
) -> None:
    """What works here and what does not, with remedies. Exit code 1 if something is broken."""
    from localspec.doctor.command import doctor

    raise typer.Exit(
        doctor(as_json=as_json, offline=offline, with_self_test=self_test, report=report)
    )


AnyModel = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A catalogue name, hf:OWNER/REPO[:QUANT|/FILE], a URL, a local file's name or path.",
    ),
]


@models.command("list")
def list_models(as_json: AsJson = False) -> None:
    """The catalogue, the GGUF files of this machine, and what fits."""
    from localspec.models.command import list_models

    raise typer.Exit(list_models(as_json=as_json))


@models.command("inspect")
def inspect_model(
    model: AnyModel,
    fit: Annotated[bool, typer.Option("--fit", help="Say whether it fits this machine.")] = False,
    as_json: AsJson = False,
) -> None:
    """What a GGUF says of itself, here or still on the Hub. Of a repository: what it has."""
    from localspec.models.command import inspect_model

    raise typer.Exit(inspect_model(model, with_fit=fit, as_json=as_json))


@models.command("fit")
@uses_engine
def fit_model(
    model: AnyModel, engine: EngineOptions, drafter: Drafter = None, as_json: AsJson = False
) -> int:
    """What a model takes here with a context and a drafter, where, and what would fit."""
    from localspec.models.fit_command import fit

    return fit(model, drafter or "none", engine, as_json=as_json)


@models.command("drafters")
def list_drafters(
    model: AnyModel,
    offline: Annotated[bool, typer.Option("--offline", help="Do not search the Hub.")] = False,
    as_json: AsJson = False,
) -> None:
    """Drafters that fit a target, best first. Its own, the catalogue's, those here, the Hub's."""
    from localspec.models.hub_command import list_drafters

    raise typer.Exit(list_drafters(model, offline=offline, as_json=as_json))


@models.command("search")
def search_models(
    words: Annotated[list[str], typer.Argument(metavar="WORDS...")], as_json: AsJson = False
) -> None:
    """Models with GGUF files on the Hub, most downloaded first."""
    from localspec.models.hub_command import search

    raise typer.Exit(search(words, as_json=as_json))


@models.command("add")
def add_model(
    model: AnyModel,
    drafter: Annotated[
        list[str] | None,
        typer.Option("--drafter", "-d", help="A drafter of it, named likewise; repeatable."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Its name in the catalogue.")] = None,
) -> None:
    """Write a model and its drafters into your own catalogue."""
    from localspec.models.hub_command import add

    raise typer.Exit(add(model, tuple(drafter or ()), name))


@models.command("check")
def check_models(as_json: AsJson = False) -> None:
    """Ask the Hub whether the catalogue's files and sizes are right."""
    from localspec.models.hub_command import check

    raise typer.Exit(check(as_json=as_json))


HubModel = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A name of `models list`, hf:OWNER/REPO, with :QUANT or /FILE.gguf, or a URL.",
    ),
]


@models.command("pull")
def pull_model(
    model: HubModel,
    quant: Annotated[
        str | None, typer.Option(help="Quantisation, such as Q4_K_M, in any case.")
    ] = None,
    drafter: Annotated[
        str,
        typer.Option(
            "--drafter", "-d", help="auto, all, none, a drafter's name, or hf:OWNER/REPO/FILE.gguf."
        ),
    ] = "auto",
    quiet: Quiet = False,
) -> None:
    """Download a model and its drafter from Hugging Face. Goes on where it was interrupted."""
    from localspec.hub.command import pull
    from localspec.hub.plan import OpenChoice

    try:
        code = pull(model, quant, drafter, quiet=quiet)
    except OpenChoice as error:
        from localspec.models.hub_command import choose_one

        raise choose_one(error) from None
    raise typer.Exit(code)


@models.command("verify")
def verify_model(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="As for pull. Default: all in the cache.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Check every byte of downloaded models. What counts is what Hugging Face promised."""
    from localspec.hub.command import verify

    raise typer.Exit(verify(model, quiet=quiet))


@models.command("rm")
def remove_model(
    model: HubModel,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a downloaded model. What interrupted downloads of its repository left goes too."""
    from localspec.hub.command import rm

    raise typer.Exit(rm(model, yes=yes))
