"""Starts JoeyNMT in its own environment: learns its subwords, then lets it train by the clock.

    python -m benchmarks.quality_systems.joeynmt_launcher train CONFIG MINUTES VALIDATIONS
    python -m benchmarks.quality_systems.joeynmt_launcher test CONFIG OUTPUT

JoeyNMT 2.3 was made with torch 2.1 and has no time limit. What is changed from outside:
- torch's ReduceLROnPlateau has no argument `verbose` any more; it is left out.
- A validation happens when the clock says so, not after a number of updates, and the clock stands still meanwhile. Its
  schedule still looks for a plateau once in 1,000 updates, as in the published recipe.
- When the time is over, it is stopped as by Ctrl-C. A Ctrl-C itself ends it with an error.
"""

from __future__ import annotations

import io
import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.quality_systems import UPDATES_PER_LOOK, Clock


def learn_subwords(config: dict[str, Any]) -> None:
    """A joint BPE of both sides of the training text as it tokenises them, and the vocabulary that results."""
    from joeynmt.tokenizers import BasicTokenizer
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.learn_bpe import learn_bpe

    data, lines = config["data"], []
    for side in (data["src"], data["trg"]):
        cfg = side["tokenizer_cfg"]
        tokenizer = BasicTokenizer("word", pretokenizer=cfg["pretokenizer"], lang=side["lang"])
        text = Path(f"{data['train']}.{side['lang']}").read_text(encoding="utf-8")
        lines += [tokenizer.pre_process(line) for line in text.splitlines()]
    codes = io.StringIO()
    learn_bpe(io.StringIO("".join(f"{line}\n" for line in lines)), codes, cfg["num_merges"])
    Path(cfg["codes"]).write_text(codes.getvalue(), encoding="utf-8")
    codes.seek(0)
    bpe = BPE(codes)
    pieces = Counter(piece for line in lines for piece in bpe.process_line(line).split())
    Path(side["voc_file"]).write_text("".join(f"{piece}\n" for piece, _ in pieces.most_common()), encoding="utf-8")


def without_verbose() -> None:
    """Let JoeyNMT build its plateau schedule with the torch of today."""
    from joeynmt import builders

    plateau = builders.ReduceLROnPlateau

    def build(optimizer: Any, verbose: bool = False, **settings: Any) -> Any:  # noqa: ARG001
        return plateau(optimizer, **settings)

    builders.ReduceLROnPlateau = build


def keep_time(clock: Clock, report: Path) -> None:
    """Validate when it is due, stop when it is over, and write down when each validation was."""
    from joeynmt.training import TrainManager

    validate, train_step = TrainManager._validate, TrainManager._train_step
    started: list[float] = []
    looks = [0]

    def step_in_time(self: Any, batch: Any) -> Any:
        if clock.is_over:
            raise KeyboardInterrupt
        started[:] = started or [clock.seconds]
        return train_step(self, batch)

    def validate_when_due(self: Any, data: Any) -> None:
        if not clock.is_due:
            return
        look = self.stats.steps // UPDATES_PER_LOOK
        self.scheduler_step_at = "validation" if look > looks[0] else "none"
        looks[0] = look
        with clock.stopped():
            validate(self, data)
        line = {
            "minutes": clock.seconds / 60,
            "updates": self.stats.steps,
            "target pieces/s": self.stats.total_tokens / (clock.seconds - started[0]),
            "minutes validating": clock.validating / 60,
            "parameters": sum(weights.numel() for weights in self.model.parameters()),
            "pieces": len(self.model.trg_vocab),
        }
        with report.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    TrainManager._train_step, TrainManager._validate = step_in_time, validate_when_due


def main() -> None:
    mode, config_path, *others = sys.argv[1:]
    if mode == "train":
        clock = Clock(float(others[0]), int(others[1]))  # before anything is loaded
        import yaml

        learn_subwords(yaml.safe_load(Path(config_path).read_text(encoding="utf-8")))
        without_verbose()
        keep_time(clock, Path(config_path).with_name("validations.jsonl"))
        signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
        sys.argv = ["joeynmt", "train", config_path, "--skip-test"]
    else:
        sys.argv = ["joeynmt", "test", config_path, "--output-path", others[0]]
    from joeynmt.__main__ import main as joeynmt

    joeynmt()


if __name__ == "__main__":
    main()
