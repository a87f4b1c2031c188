"""Quality for the minutes that one has: BLEU over time, beside what people would use instead.

    make bench-quality DATA=FOLDER [PAIR=gl-en] [MINUTES=60] [OURS="20 10"] [REFERENCE=FOLDER]

DATA holds train, dev and test in two languages, such as train.gl and train.en. A system whose outcome is there already
is not run again: what was killed goes on with the next system.
What is the same and what is not:

The same: the text (pairs of which one side is blank are left out), the machine, the threads, the minutes by the clock
on the wall from the start of the program, subwords included; d, d_ff, layers, heads and the number of merges, which are
those that qknorm plans for its longest run. The best checkpoint on dev is tested. Dev and test translations are scored
by the same function against the same lines; tokenised text is detokenised first for test.
- qknorm: `qknorm train --src … --tgt … --minutes N`, nothing else chosen. Its learning rate falls to zero at the end of
  the plan, so each number of minutes is a run of its own, and may have a smaller model. N minutes include validations
  and the test. Its planner may choose bfloat16 for linear layers, where that is faster; the others have float32 on a
  CPU.
- JoeyNMT 2.3: its published recipe for IWSLT'14 (see quality_systems/joeynmt.py). Its schedule knows no time, so one
  run gives all numbers of minutes: the best checkpoint by then (or by a twentieth later), tested at the half and at the
  end. Neither its validations nor its tests take any of its minutes. Its beam is 5, not 4; its vocabulary has as many
  merges, but learned by subword-nmt, of Moses tokens if the text is not tokenised. It also learns from those few
  training pairs that occur in dev and test, which qknorm leaves out.
- reference: the first paper's code with its published settings and our pieces, where a checkout is given; likewise one
  run, its validations not counted. Its warm-up is longer than an hour on a CPU.
Dev BLEU: greedy for qknorm and JoeyNMT, a beam of 4 for the reference.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import DEFAULT_OUT, agg_pyplot, finish, machine
from benchmarks.quality_systems import SPLITS, UPDATES_PER_LOOK, Contest, Outcome, joeynmt, ours, stop_all, write_copy
from benchmarks.translators import Size
from qknorm.data.importers import read_aligned
from qknorm.data.subwords import looks_tokenized
from qknorm.errors import InputError
from qknorm.screen import Screen

OURS, JOEYNMT, REFERENCE = "qknorm", "JoeyNMT 2.3", "reference"
COLOURS = {OURS: "#0072b2", JOEYNMT: "#d55e00", REFERENCE: "#777777"}
PARTS = (1 / 6, 1 / 3, 1 / 2, 1.0)
"""Of the minutes, where systems are looked at: the whole and the half, and a third of each."""
GOALS = (1 / 2, 1.0)
"""Where the others are tested; a beam search of theirs may take a quarter of an hour."""
TIMES_AS_GOOD, SHARE_OF_TIME = 2.0, 1 / 3
"""At each goal: so many times JoeyNMT's BLEU, or its BLEU in this share of the time."""
VALIDATIONS = 6  # of those that validate by the clock: one at each of the parts
_SECONDS_BETWEEN_LOOKS = 2.0
_OUTCOME = "outcome.json"

Outcomes = dict[str, list[Outcome]]
"""By system: one run, or one for each number of minutes."""


def languages_of(data: Path, pair: str | None) -> tuple[str, str]:
    """Source and target: as given, else as the folder's name ends, such as ted-gl-en."""
    result = sorted(path.suffix.removeprefix(".") for path in data.glob("train.*"))
    if len(result) != 2:
        raise InputError(f"{data} must hold train.xx and train.yy, xx and yy being the languages; found: {result}")
    source, _, target = (pair or "-".join(data.resolve().name.split("-")[-2:])).partition("-")
    if sorted((source, target)) != result:
        raise InputError(f"say which language is the source: PAIR={'-'.join(result)} or PAIR={'-'.join(result[::-1])}")
    return source, target


def prepare(data: Path, pair: str | None, threads: int, folder: Path) -> Contest:
    """Copy the text without pairs of which one side is blank, or find it copied before."""
    source, target = languages_of(data, pair)
    text, digest = folder / "text", hashlib.sha256()
    for split in SPLITS:
        pairs = list(read_aligned(*(data / f"{split}.{language}" for language in (source, target))))
        whole = [pair for pair in pairs if pair.source.strip() and pair.target.strip()]
        for side, language in enumerate((source, target)):
            lines = [pair[side] for pair in whole]
            digest.update("\n".join(lines).encode())
            write_copy(lines, text / f"{split}.{language}")
    tokenized = all(looks_tokenized((text / f"train.{side}").open(encoding="utf-8")) for side in (source, target))
    contest = Contest(text.resolve(), source, target, tokenized, threads)
    about = {"pair": [source, target], "threads": threads, "text": digest.hexdigest()}
    kept = folder / "contest.json"
    if kept.exists() and json.loads(kept.read_text(encoding="utf-8")) != about:
        raise InputError(f"{folder} holds outcomes of another text or number of threads; move it away or give --out")
    kept.write_text(json.dumps(about), encoding="utf-8")
    return contest


def kept_or_made(work: Callable[[Path], Outcome], folder: Path, console: Screen) -> Outcome:
    """The outcome that an earlier call has left, or a new one. What was begun and not ended is begun again."""
    path = folder / _OUTCOME
    if path.exists():
        console.print(f"{folder.name}: kept from before", highlight=False)
        return Outcome.load(path)
    forget_unfinished(folder)
    folder.mkdir(parents=True)
    console.print(f"{folder.name}: begun at {time.strftime('%H:%M')}", highlight=False)
    outcome = work(folder.resolve())
    outcome.save(path)
    points = ", ".join(f"{scores['bleu']:.2f} at {view} minutes" for view, scores in outcome.tests.items())
    console.print(f"{folder.name}: test BLEU {points or 'unknown: nothing was validated in time'}", highlight=False)
    return outcome


def forget_unfinished(folder: Path) -> None:
    if not (folder / _OUTCOME).exists():
        shutil.rmtree(folder, ignore_errors=True)


def measure(arguments: argparse.Namespace, console: Screen) -> dict[str, Any]:
    text = arguments.data.resolve().name
    folder = arguments.out / "quality" / text
    folder.mkdir(parents=True, exist_ok=True)
    contest = prepare(arguments.data, arguments.pair, arguments.threads, folder)
    minutes, at_once = arguments.minutes, max(1, len(os.sched_getaffinity(0)) // arguments.threads)
    views, goals = ([minutes * part for part in parts] for parts in (PARTS, GOALS))
    own_views = sorted(arguments.ours or views, reverse=True)
    longest = folder / f"qknorm-{own_views[0]:g}"
    forget_unfinished(longest)  # now: others wait for the size that it plans, and must not find an old one
    with _cancelling(ThreadPoolExecutor(at_once)) as pool:

        def enter(system: str, work: Callable[[Path], Outcome], limit: float = minutes) -> Future[Outcome]:
            return pool.submit(kept_or_made, work, folder / f"{system}-{limit:g}", console)

        first = enter("qknorm", partial(ours.run, contest, own_views[0]), own_views[0])
        entered = {OURS: [first]}
        for system, name, place, work in (
            (JOEYNMT, "joeynmt", arguments.joeynmt, _joeynmt),
            (REFERENCE, "reference", arguments.reference, _reference),
        ):
            if place is None:
                console.print(f"{system} is left out; say where it is with --{name}.")
            else:
                task = partial(work, contest, minutes, goals, place.absolute(), longest, first)
                entered[system] = [enter(name, task)]
        entered[OURS] += [enter("qknorm", partial(ours.run, contest, view), view) for view in own_views[1:]]
        outcomes = {system: [future.result() for future in futures] for system, futures in entered.items()}
    size, merges = ours.size_of_run(longest)
    _check_size(size, outcomes)
    return {
        "machine": {**machine(), "threads": contest.threads},
        "command": f"make bench-quality DATA={text} PAIR={contest.source}-{contest.target} MINUTES={minutes:g} "
        f"THREADS={contest.threads} OURS={' '.join(f'{view:g}' for view in own_views)!r}",
        "side by side": at_once,
        "minutes": minutes,
        "text": {
            "name": text,
            "pair": [contest.source, contest.target],
            "tokenized": contest.tokenized,
            "pairs": {split: len(contest.lines(split, contest.source)) for split in SPLITS},
        },
        "size": {"merges": merges, **size.shape},
        "systems": {system: [asdict(outcome) for outcome in runs] for system, runs in outcomes.items()},
    }


@contextmanager
def _cancelling(pool: ThreadPoolExecutor) -> Iterator[ThreadPoolExecutor]:
    """After an error or Ctrl-C, no further system is started and none goes on."""
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        stop_all()
        raise
    finally:
        pool.shutdown()


def _check_size(size: Size, outcomes: Outcomes) -> None:
    """What an earlier call has left may be of another size, if our longest run was another then."""
    for run in outcomes.get(JOEYNMT, []):
        if any(run.facts["size"][key] != value for key, value in size.shape.items()):
            raise InputError(
                f"the {JOEYNMT} that was kept from before is of another size than our longest run now; move its folder "
                "away to train it again"
            )


def _joeynmt(
    contest: Contest,
    minutes: float,
    views: Iterable[float],
    python: Path,
    longest: Path,
    first: Future[Outcome],
    to: Path,
) -> Outcome:
    size, merges = _planned(longest, first)
    return joeynmt.run(contest, size, merges, minutes, views, VALIDATIONS, python, to)


def _reference(
    contest: Contest,
    minutes: float,
    views: Iterable[float],
    checkout: Path,
    longest: Path,
    first: Future[Outcome],
    to: Path,
) -> Outcome:
    from benchmarks.quality_systems import reference

    _planned(longest, first)
    return reference.run(contest, minutes, views, VALIDATIONS, longest.resolve(), checkout, to)


def _planned(longest: Path, first: Future[Outcome]) -> tuple[Any, int]:
    """The size and merges of our longest run, as soon as it has planned them."""
    while not first.done() and not (ours.run_folder(longest) / "recipe.yaml").exists():
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    if first.done():
        first.result()  # what went wrong there
    return ours.size_of_run(longest)


def tested(runs: Iterable[Outcome], minutes: float) -> float | None:
    """Test BLEU after so many minutes."""
    return next((run.tests[f"{minutes:g}"]["bleu"] for run in runs if f"{minutes:g}" in run.tests), None)


def outcomes_of(result: dict[str, Any]) -> Outcomes:
    return {system: [Outcome.from_dict(run) for run in runs] for system, runs in result["systems"].items()}


def markdown(result: dict[str, Any]) -> str:
    """The table, and what has to be known to read it."""
    outcomes, minutes = outcomes_of(result), result["minutes"]
    views = [minutes * part for part in PARTS]
    outcome = {system: [tested(runs, view) for view in views] for system, runs in outcomes.items()}
    heading = [
        "test BLEU after",
        *(f"{view:.3g} min" for view in views),
        "chrF at its end",
        "updates",
        "target pieces/s",
        "parameters",
    ]
    rows = []
    for system, runs in outcomes.items():
        facts, tests = runs[0].facts, runs[0].tests
        end = tests[max(tests, key=float)] if tests else {}
        numbers = [_in_digits(facts.get(key), ",.0f") for key in ("updates", "target pieces/s", "parameters")]
        rows.append([system, *(_in_digits(value) for value in outcome[system]), _in_digits(end.get("chrf")), *numbers])
    if JOEYNMT in outcome:
        ratios = [
            f"{our / their:.2f}" if our is not None and their else "–"
            for our, their in zip(outcome[OURS], outcome[JOEYNMT], strict=True)
        ]
        rows.append([f"{OURS} × {JOEYNMT}", *ratios, "", "", "", ""])
    lines = [heading, ["---", *["--:"] * (len(heading) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n\n" + "\n".join(words(result)) + "\n"


def _in_digits(value: float | None, form: str = ".2f") -> str:
    return "–" if value is None else format(value, form)


def words(result: dict[str, Any]) -> list[str]:
    """What was the same and what was not, with the numbers of this run."""
    text, size, outcomes = result["text"], result["size"], outcomes_of(result)
    pairs, threads, at_once = text["pairs"], result["machine"]["threads"], result["side by side"]
    kind = "tokenised text, scored detokenised" if text["tokenized"] else "text as people write it"
    turns = "one system after another" if at_once == 1 else f"{at_once} systems side by side"
    lines = [
        f"{text['name']}, {' → '.join(text['pair'])}: {pairs['train']:,} pairs to learn from, {pairs['dev']:,} dev, "
        f"{pairs['test']:,} test; {kind}. {turns.capitalize()}, {threads} thread{'s' * (threads > 1)} each.",
        "",
        "The same for all: the text, the threads, the minutes on the wall, subwords included; "
        f"d = {size['dim']}, d_ff = {size['feed_forward']}, {size['encoder_layers']} + {size['decoder_layers']} "
        f"layers, {size['heads']} heads, {size['merges']:,} merges; how translations are scored. Not the same:",
        "",
        f"- {OURS} had a run of its own for each number of minutes, since its learning rate falls to zero at the "
        f"end of its plan. {_chosen(outcomes[OURS], size)}Its minutes include validations and the test; it took "
        f"{', '.join(f'{run.took:.1f} of {run.minutes:.3g}' for run in outcomes[OURS] if run.took is not None)}.",
    ]
    if JOEYNMT in outcomes:
        facts = outcomes[JOEYNMT][0].facts
        looks = facts.get("updates", 0) // UPDATES_PER_LOOK
        lines.append(
            f"- {JOEYNMT} had one run with its published recipe for IWSLT'14: batches of 4,096 positions, AdamW at "
            "3e-4, dropout 0.3, a beam of 5. The column of each time is its best checkpoint by then. Its validations "
            f"({facts.get('minutes validating', 0):.0f} minutes) and its test were not counted. Its schedule looks for "
            "a plateau every 1,000 updates and acts after the seventh look at the earliest; "
            f"it had {looks}."
        )
    if REFERENCE in outcomes:
        lines.append(
            f"- {REFERENCE} had one run with its published settings and our pieces; its warm-up of 8,000 updates was "
            f"{min(1.0, outcomes[REFERENCE][0].facts['updates'] / 8000):.0%} done at the end."
        )
    return lines


def _chosen(runs: Sequence[Outcome], size: dict[str, Any]) -> str:
    """Which of our runs have another size than the longest, or half precision."""
    recipes = {f"{run.minutes:.3g}": run.facts["recipe"] for run in runs if "recipe" in run.facts}
    dims = {minutes: recipe["model"]["dim"] for minutes, recipe in recipes.items()}
    others = [f"{dim} for {minutes} minutes" for minutes, dim in dims.items() if dim != size["dim"]]
    half = [minutes for minutes, recipe in recipes.items() if recipe["training"]["precision"] != "float32"]
    return (f"Its planner chose d = {', '.join(others)}. " if others else "") + (
        f"It computed linear layers in bfloat16 in the runs of {', '.join(half)} minutes, the others all in float32. "
        if half
        else ""
    )


def verdict(result: dict[str, Any]) -> list[str]:
    """Each goal that was missed, as a sentence."""
    outcomes = outcomes_of(result)
    if JOEYNMT not in outcomes:
        return [f"{JOEYNMT} was left out: there is nothing to compare with"]
    missed = [
        f"{OURS} took {run.took:.1f} minutes where it had {run.minutes:.3g}: the machine became slower than it was "
        "when the run was planned"
        for run in outcomes[OURS]
        if run.took is not None and run.is_late
    ]
    for goal in GOALS:
        minutes = result["minutes"] * goal
        ours_then, theirs = (tested(outcomes[system], minutes) for system in (OURS, JOEYNMT))
        early = tested(outcomes[OURS], minutes * SHARE_OF_TIME)
        if theirs is None or ours_then is early is None:
            without = JOEYNMT if theirs is None else OURS
            missed.append(f"{minutes:g} minutes: {without} had no translation of the test set by then")
        elif (ours_then or 0) < TIMES_AS_GOOD * theirs and (early or 0) < theirs:
            missed.append(
                f"{minutes:g} minutes: {_in_digits(ours_then)} BLEU against {theirs:.2f} of {JOEYNMT}, goal "
                f"{TIMES_AS_GOOD:g} times as many, or as many in a third of the time: then ours was {_in_digits(early)}"
            )
    return missed


def draw(result: dict[str, Any], path: Path) -> None:
    """BLEU over minutes: a line of dev BLEU for each run, and its test BLEU."""
    plt = agg_pyplot()
    figure, axis = plt.subplots(figsize=(7.5, 4.4), layout="constrained")
    for system, runs in outcomes_of(result).items():
        colour = COLOURS[system]
        for number, run in enumerate(runs):
            style = {"color": colour, "alpha": 1.0 if number == 0 else 0.45, "linewidth": 2 if number == 0 else 1.2}
            curve = [(point.minutes, point.bleu) for point in run.curve]
            axis.plot(*zip((0, 0), *curve, strict=True), marker=".", label=None if number else system, **style)
        tests = [(run.took or float(view), scores["bleu"]) for run in runs for view, scores in run.tests.items()]
        for minutes, bleu in tests:
            axis.plot(minutes, bleu, "*", markersize=13, color=colour, markeredgecolor="white", zorder=3)
            place = {"textcoords": "offset points", "ha": "right", "color": colour, "fontsize": 9}
            axis.annotate(f"{bleu:.1f}", (minutes, bleu), (-5, 6), **place)
    axis.plot([], [], "*", color="black", markersize=11, markeredgecolor="white", label="test; lines: dev")
    if len(result["systems"][OURS]) > 1:
        axis.plot([], [], color=COLOURS[OURS], alpha=0.45, linewidth=1.2, label=f"{OURS}, runs of fewer minutes")
    text = result["text"]
    axis.set(
        xlabel=f"minutes on {result['machine']['threads']} thread{'s' * (result['machine']['threads'] > 1)}",
        ylabel="BLEU",
        xlim=0,
        ylim=0,
    )
    axis.set_title(f"{text['name']}, {' → '.join(text['pair'])}, {text['pairs']['train']:,} pairs", fontsize=10)
    axis.margins(y=0.1)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of train, dev and test in two languages")
    parser.add_argument("--pair", help="source and target, such as gl-en, if the folder's name does not end so")
    parser.add_argument("--minutes", type=float, default=60.0, help="for each system")
    parser.add_argument(
        "--ours",
        type=float,
        nargs="+",
        metavar="MINUTES",
        help="of our runs, instead of one for each column: a third of each goal may be enough to meet it",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="of each system; with fewer than there are cores, several systems run side by side",
    )
    parser.add_argument("--joeynmt", type=Path, help="the Python of an environment with JoeyNMT 2.3")
    parser.add_argument("--reference", type=Path, help="a checkout of the first paper's code")
    parser.add_argument(
        "--out", type=Path, default=DEFAULT_OUT, help="folder for the JSON, the PNG, the table and runs"
    )
    arguments = parser.parse_args()
    console = Screen()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        result = measure(arguments, console)
    except (InputError, RuntimeError) as error:
        console.print(f"error: {error}", markup=False)
        sys.exit(2)
    name = f"quality-{result['text']['name']}"
    table = markdown(result)
    console.print(table, markup=False, soft_wrap=True)
    (arguments.out / f"{name}.md").write_text(table, encoding="utf-8")
    draw(result, arguments.out / f"{name}.png")
    sys.exit(finish(name, result, verdict(result), arguments.out, console))


if __name__ == "__main__":
    main()
