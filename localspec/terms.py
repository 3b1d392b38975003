"""What each number means, in words for a person: the one place that screens and help quote.

The definitions are those of DESIGN section 5, which ``records`` computes.
"""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    name: str
    means: str


TERMS: dict[str, Term] = {
    "tok/s": Term(
        "tok/s",
        "Tokens per second while decoding, in the engine's own time. During an answer: over the "
        "last 2 seconds. Afterwards: tokens emitted by decode steps / time from the first token to "
        "the last. Reading the prompt and drawing the screen are not in it.",
    ),
    "baseline": Term(
        "baseline",
        "The same model without a drafter. It is measured, never assumed: from the last answer "
        "with speculation off, or when you ask for it. Its age stands beside it, and where "
        "there is room its context depth, because decoding slows as the context fills.",
    ),
    "speedup": Term(
        "speedup",
        "Decode tok/s with the drafter / tok/s of the baseline. Above 1 the drafter pays off. In "
        "square brackets: the 95 % confidence interval. One that contains 1.00 shows no "
        "difference.",
    ),
    "accept length": Term(
        "accept length (AL)",
        "Tokens emitted by decode steps / passes of the target in them. 1.00 without a drafter: "
        "one pass, one token. With one, it is what each expensive pass yields on average.",
    ),
    "passes": Term(
        "passes",
        "How often the target was run in decode steps; each pass checks a whole draft at once. "
        "Replays are among them: where the memory cannot be rolled back (recurrent and hybrid "
        "models), what was accepted of a rejected draft is run again.",
    ),
    "acceptance rate": Term(
        "acceptance rate", "Accepted / drafted tokens; drafted = submitted to the target's check."
    ),
    "coverage": Term(
        "coverage",
        "Steps with a draft / all steps. In the others the drafter had nothing to propose.",
    ),
    "reach rate": Term(
        "accepted by position",
        "Of the steps with a draft, the share in which the first i drafted tokens were all "
        "accepted. It falls with i; where it gets low, longer drafts cost more than they yield.",
    ),
    "step time": Term(
        "where a step's time goes",
        "draft: the drafter's work. verify: the target's pass over the draft. rollback: taking "
        "back what was rejected. overhead: sampling and the loop itself. rest: both of these. "
        "Averages over the steps so far.",
    ),
    "beta": Term(
        "beta",
        "How far the drafter's probabilities are from the target's, per drafted position: the sum "
        "of max(0, p - q). 0 is perfect; it is the chance that a sampled draft is rejected.",
    ),
    "ttft": Term(
        "TTFT",
        "Time to first token: from sending the prompt to the first token of the answer, the "
        "drafter's own reading of the prompt included.",
    ),
    "context": Term(
        "ctx",
        "Tokens of the conversation that the model holds / the most it can hold. When it is full, "
        "the oldest turns are dropped from the context; the transcript keeps them.",
    ),
    "drafted": Term(
        "drafted text",
        "Tinted: tokens that the drafter guessed and the target confirmed. The target "
        "wrote the rest itself. The text is the same either way: acceptance is exact.",
    ),
    "p and q": Term(
        "p and q",
        "p: the target's probability of the token after the whole sampler (at temperature 0: "
        "before the likeliest is taken). q: the drafter's, after the sampler if its draft was "
        "sampled, else straight from its logits. n-gram drafts are looked up and have no q ('-'), "
        "nor have tokens that the target adds itself. p is '-' for drafted tokens behind a "
        "rejected one: they were not looked at.",
    ),
    "temperature": Term(
        "T", "Temperature of the sampler: 0 always takes the likeliest token; higher varies more."
    ),
    "draft length": Term(
        "n", "The most tokens drafted per step; auto chooses anew for each step as many as pay off."
    ),
    "identical": Term(
        "identical",
        "Is the text, token for token, that of the baseline? A near tie is a place where two "
        "tokens were as likely as rounding can tell; anything else is a MISMATCH, a fault.",
    ),
    "change": Term(
        "change",
        "The later result / the earlier one, prompt by prompt, with its 95 % confidence interval. "
        "tok/s also carry the heat and load of two different hours; speedups, each measured "
        "against its own baseline, do not. REGRESSION: shown to be slower.",
    ),
    "verdict": Term(
        "verdict",
        "faster, slower or no difference shown, at 95 % confidence, corrected for the number of "
        "drafters compared. Too few prompts: no verdict.",
    ),
    "pairs": Term(
        "pairs",
        "A run of the baseline and one of the drafter next to it, in random order, so that heat "
        "and other load hit both. They go on until the interval is narrow: its width decides, "
        "never who is ahead.",
    ),
    "race": Term(
        "race",
        "Two recorded runs at the speed they really had, from sending the prompt on. It starts "
        "with the pair whose speedup is nearest the mean. Blocks: tokens of one target pass.",
    ),
    "fit": Term(
        "fits",
        "Whether the model, with a context of 4,096 tokens, fits the memory that is free now, and "
        "where: all of it on the GPU, a part of it (GPU+CPU), or in the machine's memory (CPU). "
        "~: judged by the size alone.",
    ),
    "drafters": Term(
        "drafters",
        "What drafts for the model. ★ marks the one used unless you choose another; a dim "
        "one is still to be downloaded. ngram needs no file and goes with every model.",
    ),
    "download": Term(
        "download",
        "How much of the file is here, the bytes per second over the last 8 seconds, and the time "
        "left at that speed. What arrived is kept: p goes on from there, after a restart too.",
    ),
}
