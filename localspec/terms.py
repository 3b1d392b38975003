"""What each number means, in words for a person: the one place that screens and help quote.

The definitions are those of DESIGN section 5, which ``records`` computes.
"""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    name: str
    means: str


_TEMPERATURE = "Temperature of the sampler: 0 always takes the likeliest token; higher varies more."
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
        "of at least 16 tokens with speculation off, or when you ask for it. Its age stands beside "
        "it, and where there is room its context depth: decoding slows as the context fills.",
    ),
    "tok/s of a bench": Term(
        "tok/s",
        "Tokens that the decode steps of all runs of the row emitted / the time that these runs "
        "took from their first token to their last, in the engine's own time. Reading the prompt "
        "and drawing the screen are not in it.",
    ),
    "baseline of a bench": Term(
        "baseline",
        "The target without a drafter. It is a row of the same benchmark: its runs are made in "
        "turns with the drafters', on the same prompts.",
    ),
    "speedup": Term(
        "speedup",
        "Decode tok/s with the drafter / tok/s of the baseline. Above 1 the drafter pays off. In "
        "square brackets: the 95 % confidence interval. One that contains 1.00 shows no "
        "difference.",
    ),
    "speedup of a bench": Term(
        "speedup",
        "Decode tok/s with the drafter / the baseline's on the same prompt, and of these ratios "
        "the (geometric) mean. Above 1 the drafter pays off. In square brackets: the 95 % "
        "confidence interval. One that contains 1.00 shows no difference.",
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
    "reach": Term(
        "reach % by position",
        "Of the steps with a draft, the percentage in which the first i drafted tokens were all "
        "accepted, for i = 1, 2, ... Where it gets low, longer drafts cost more than they yield.",
    ),
    "step time": Term(
        "where a step's time goes",
        "draft: the drafter's work. verify: the target's pass over the draft. rollback: taking "
        "back what was rejected. overhead: sampling and the loop itself. rest: both of these. "
        "Averages over the steps so far.",
    ),
    "shares": Term(
        "draft/verify/overhead %",
        "Where the time of a step goes, in percent. draft: the drafter's work. verify: the "
        "target's pass over the draft. overhead: sampling and the loop itself. rollback, where it "
        "takes 1 % or more: taking back what was rejected.",
    ),
    "beta": Term(
        "beta",
        "How far the drafter's probabilities are from the target's, per drafted position: the sum "
        "of max(0, p - q). 0 is perfect; it is the chance that a sampled draft is rejected.",
    ),
    "ttft": Term(
        "TTFT",
        "Time to first token: from sending the prompt to the first token of the answer, the "
        "drafter's own reading of the prompt included. Loading the model is not in it.",
    ),
    "context": Term(
        "ctx",
        "Tokens of the conversation that the model holds / the most it can hold. When it is full, "
        "the oldest turns are dropped from the context; the transcript keeps them.",
    ),
    "drafted": Term(
        "drafted text",
        "Tinted: tokens that the drafter guessed and the target confirmed. The target "
        "wrote the rest itself. The text is the same either way: acceptance is exact, but for near "
        "ties. F7 sets it beside the baseline's.",
    ),
    "p and q": Term(
        "p and q",
        "p: the target's probability of the token after the whole sampler (at temperature 0: "
        "before the likeliest is taken). q: the drafter's, after the sampler if its draft was "
        "sampled, else straight from its logits. n-gram drafts are looked up and have no q ('-'), "
        "nor have tokens that the target adds itself. p is '-' for drafted tokens behind a "
        "rejected one: they were not looked at; and from the token on where the answer, run again "
        "for p and q, became another text.",
    ),
    "temperature": Term("T", _TEMPERATURE),
    "temp": Term("temp", _TEMPERATURE),
    "draft length": Term(
        "n", "The most tokens drafted per step; auto chooses anew for each step as many as pay off."
    ),
    "near tie": Term(
        "near tie",
        "A place where two tokens were as likely as rounding can tell. A batch of several tokens "
        "rounds otherwise than one alone, and then the texts may part there, both right. Where "
        "Chat only says that it is another text, A/B and Bench can tell why.",
    ),
    "beside other load": Term(
        "beside other load",
        "Other programs used a quarter of a processor or more meanwhile (of many processors, a "
        "twentieth): the speed is lower and less steady than it would be.",
    ),
    "identical": Term(
        "identical",
        "Is the text, token for token, that of the baseline? A near tie is a place where two "
        "tokens were as likely as rounding can tell; anything else is a MISMATCH, a fault.",
    ),
    "output": Term(
        "output",
        "Is the text, token for token, that of the baseline? ✓ 17/17: in all of so many runs. A "
        "near tie is a place where two tokens were as likely as rounding can tell; anything else "
        "is a MISMATCH, a fault. Where drafts are drawn by chance: ✓ distribution.",
    ),
    "runs": Term(
        "runs",
        "How many runs the row's figures are of. It is shown while it is measured, and where the "
        "rows differ: tok/s beside each other are then of unlike prompts, while each speedup is of "
        "the prompts that the row and the baseline both have.",
    ),
    "bases": Term(
        "base",
        "Which file of the target, and with which settings, the row is of, where there are "
        "several. over reference: decode tok/s / that of the first base's baseline.",
    ),
    "tok/s of a comparison": Term(
        "tok/s",
        "Of the earlier result > of the later one: the (geometric) mean of the decode tok/s on the "
        "prompts that both have. All tokens / all time, which the table of one result shows, are "
        "another figure.",
    ),
    "speedup of a comparison": Term(
        "speedup",
        "Of the earlier result > of the later one: decode tok/s with the drafter / the baseline's "
        "on the same prompt, and of these ratios the (geometric) mean over the prompts that both "
        "have.",
    ),
    "base of a comparison": Term(
        "base",
        "Which file of the target, and with which settings, the row is of, where there are "
        "several.",
    ),
    "change": Term(
        "change",
        "The later result / the earlier one, prompt by prompt, with its 95 % confidence interval. "
        "tok/s also carry the heat and load of two different times; speedups, each measured "
        "against its own baseline, do not. REGRESSION: shown to be slower; better: to be faster, "
        "at 95 % confidence, corrected for the number of rows.",
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
        "never who is ahead. A few that were disturbed or cut short are made again; of both one "
        "counts. All numbers here are of the pairs that count.",
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
    "model size": Term(
        "size",
        "Of the model's file; of one that is not here, of the quantisation that its entry names "
        "first. Empty: the catalogue does not say; p asks the Hub.",
    ),
    "state": Term(
        "state",
        "✓ here, or the program whose file it is. ·: not here, Enter or p downloads it. · to "
        "install: it comes with a package; Enter says which. ━─ and a share: on its way. ‖: a "
        "download that was stopped or failed, with what is kept of it; p goes on. ✗: the file "
        "cannot be used; i says why.",
    ),
    "download": Term(
        "download",
        "How much of the file is here, the bytes per second over the last 8 seconds, and the time "
        "left at that speed. What arrived is kept: p goes on from there, after a restart too.",
    ),
}
