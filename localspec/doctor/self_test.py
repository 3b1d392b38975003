"""Does it work? One prompt of the demo model with and without its drafter, through the same code as
every benchmark: engine, drafter, verification, comparison of the outputs."""

from __future__ import annotations

from localspec.bench.command import measure, select
from localspec.bench.progress import Quiet
from localspec.bench.report import result
from localspec.bench.table import alarms, name
from localspec.doctor.findings import Finding
from localspec.errors import LocalspecError, ModelFileError
from localspec.records import BenchOptions, EngineOptions

PROMPT = "Count from one to twenty in words, then do it again."
TOKENS, DRAFTED = 48, 3
LEAST_ACCEPTED = 1
DRAFTER = "draft-model"


def self_test(model: str = "demo", drafter: str = DRAFTER) -> Finding:
    """About ten seconds. Broken: something fails, or the drafter changes the output."""
    check = "self-test"
    options = BenchOptions(
        model=model,
        drafters=(drafter,),
        prompt=PROMPT,
        n_max=(DRAFTED,),
        max_tokens=TOKENS,
        runs=1,
        save=False,
        engine=EngineOptions(),
    )
    try:
        selection = select(options)
    except ModelFileError as error:
        return Finding(check, "not made: no demo model", "note", error.message, error.hint)
    except LocalspecError as error:
        return Finding(check, "failed", "broken", error.message, error.hint)
    try:
        found = result(measure(selection, Quiet()))
    except LocalspecError as error:
        return Finding(check, "failed", "broken", error.message, error.hint)
    plain, drafted = found["candidates"]
    facts = {
        "decode_tps": plain["decode_tps"],
        "drafted_tps": drafted["decode_tps"],
        "accept_length": drafted["accept_length"],
        "accepted": drafted["counts"]["accepted"],
        "identical": drafted["identical"],
        "divergences": drafted["divergences"],
    }
    wrong = alarms(found)
    if not wrong and drafted["counts"]["accepted"] < LEAST_ACCEPTED:
        wrong = [f"{name(drafted)} had no drafted token accepted, which it was trained for."]
    if wrong or found["status"] != "complete" or not plain["decode_tps"]:
        why = " ".join(wrong) or "Nothing could be measured."
        remedy = "Look into the engine's log (`localspec bench --model demo --log-file FILE`)."
        return Finding(check, "failed", "broken", why, remedy, facts)
    same = "the same output" if drafted["identical"] else "the same output but for a near tie"
    return Finding(
        check,
        f"{model}: {plain['decode_tps']:.0f} tok/s plain, {drafted['decode_tps']:.0f} tok/s with "
        f"{name(drafted)}, accept length {drafted['accept_length']:.2f}, {same}",
        facts=facts,
    )
