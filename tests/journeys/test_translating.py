"""`qknorm translate` as a user meets it, with a small trained model."""

from __future__ import annotations

import json
import re
import resource
import shutil
import subprocess
import sys
from functools import partial
from math import exp
from pathlib import Path
from statistics import geometric_mean

import pytest

from qknorm import Translator
from qknorm.data.textfiles import read_lines, write_lines
from qknorm.decoding.decoders import make_decoder
from qknorm.runs.contents import Calibrations
from tests.journeys.conftest import Command
from tests.journeys.test_command import run

LINES = ["The house is red.", "", "  ", "жжж 😀", "I eat."]


@pytest.fixture
def translate(command: Command, trained_run: Path) -> Command:
    """`qknorm translate` with the trained run."""
    return partial(command, "translate", str(trained_run))


def test_lines_in_are_lines_out(translate: Command, trained_run: Path) -> None:
    write_lines(Path("in.txt"), LINES)
    done = translate("in.txt")
    assert (done.code, done.errors) == (0, "")
    out = done.out.split("\n")[:-1]
    assert out == Translator.load(trained_run).translate(LINES)
    assert out[1] == out[2] == ""
    assert translate(stdin=b"\xef\xbb\xbf" + "\r\n".join(LINES).encode()).out == done.out, "as from anywhere"
    assert translate(stdin="I eat.\u2028I eat.\x0cI eat.\x85".encode()).out.count("\n") == 1
    assert (translate(stdin=b"").out, translate(stdin=b"\n").out) == ("", "\n")

    rows = [line.split("\t") for line in translate("in.txt", "--n-best", "3").out.split("\n")[:-1]]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2", "3"] + ["4"] * 3 + ["5"] * 3
    assert rows[3][1:] == ["0.0000", ""]
    assert float(rows[0][1]) > float(rows[1][1]) > float(rows[2][1])


def test_a_file_appears_when_it_is_complete(translate: Command) -> None:
    done = translate("-o", "out.txt", stdin=b"I eat.\n\n")
    assert (done.code, done.out) == (0, "")
    assert len([*read_lines(Path("out.txt"))]) == 2
    done = translate("-o", "bad.txt", "--batch-size", "1", stdin=b"I eat.\n\xff\n")
    assert done.code == 2
    assert "standard input, line 2: byte 0xff at offset 0 of the line is not UTF-8" in done.errors
    assert sorted(path.name for path in Path().iterdir()) == ["out.txt"]


def test_an_output_is_not_written_over_a_file_by_accident_nor_into_a_new_folder(translate: Command) -> None:
    Path("mine.txt").write_text("mine")
    done = translate("-o", "mine.txt", stdin=b"I eat.\n")
    assert (done.code, Path("mine.txt").read_text()) == (2, "mine")
    assert "mine.txt exists already; choose another name, or overwrite it with --force" in done.errors
    assert translate("-o", "mine.txt", "--force", stdin=b"I eat.\n").code == 0
    assert Path("mine.txt").read_text() != "mine"
    done = translate("-o", "mien/out.txt", "--force", stdin=b"I eat.\n")
    assert (done.code, done.errors) == (2, "qknorm: mien/out.txt cannot be written: there is no folder mien\n")
    assert not Path("mien").exists()
    assert translate("-o", "/dev/null", stdin=b"I eat.\n").code == 0


def test_json_tells_all(translate: Command, trained_run: Path) -> None:
    done = translate("--json", "--pieces", "--attention", "--n-best", "2", stdin=b"The house is red.\n\n")
    first, blank = (json.loads(line) for line in done.out.split("\n")[:-1])
    assert (first["line"], first["source"]) == (1, "The house is red.")
    best, _ = first["translations"]
    assert best.keys() == {"text", "score", "confidence", "pieces", "piece_scores"}
    assert len(best["pieces"]) == len(best["piece_scores"])
    penalty = ((5 + len(best["pieces"])) / 6) ** 0.6
    assert best["score"] == pytest.approx(sum(best["piece_scores"]) / penalty, abs=1e-4)
    calibration = Calibrations.of_file(trained_run / "confidence.json").by_direction["src-tgt"]
    probability = geometric_mean(map(exp, best["piece_scores"]))
    assert best["confidence"] == pytest.approx(calibration.expected(probability), abs=1e-4)
    (maps,) = first["attention"]
    assert maps["target_pieces"] == best["pieces"]
    cross = maps["cross"]
    assert (len(cross), len(cross[0])) == (2, 4)  # layers and heads
    for head in cross[0]:
        assert len(head) == len(maps["target_pieces"])
        assert all(len(row) == len(maps["source_pieces"]) and abs(sum(row) - 1) < 0.01 for row in head)
    assert blank["translations"] == [
        {"text": "", "score": 0.0, "confidence": round(calibration.expected(1), 4), "pieces": [], "piece_scores": []}
    ]
    assert blank["attention"] == []
    (told,) = json.loads(translate("--json", stdin=b"I eat.\n").out)["translations"]
    assert told.keys() == {"text", "score", "confidence"}


def test_a_run_of_an_earlier_version_tells_no_confidence(command: Command, trained_run: Path) -> None:
    shutil.copytree(trained_run, "mine")
    Path("mine/confidence.json").unlink()
    (told,) = json.loads(command("translate", "mine", "--json", stdin=b"I eat.\n").out)["translations"]
    assert told.keys() == {"text", "score"}


def test_decoders_and_lengths_can_be_chosen(translate: Command) -> None:
    def length(*arguments: str) -> int:
        return len(translate(*arguments, stdin=b"The house is red.\n").out)

    assert length("--max-length", "2") < length() < length("--min-length", "30")
    assert length("--length-penalty", "-3") <= length("--length-penalty", "3")
    text = ("I eat.\n" * 8).encode()
    first, again, other = (translate("--decoder", "sampling", "--seed", seed, stdin=text).out for seed in "334")
    assert first == again != other
    likeliest = translate("--decoder", "sampling", "--top-k", "1", "--temperature", "0.5", stdin=text).out
    assert likeliest == translate("--beam-size", "1", stdin=text).out


def test_products_of_bytes_translate_too(translate: Command) -> None:
    text = b"The house is red.\n\nI eat.\n"
    done = translate("--precision", "int8", stdin=text)
    assert (done.code, done.out.count("\n")) == (0, 3)
    exact, rounded = (
        json.loads(translate("--json", "--precision", precision, stdin=b"I eat.\n").out)["translations"][0]["score"]
        for precision in ("float32", "int8")
    )
    assert rounded == pytest.approx(exact, abs=0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.txt"], "nowhere.txt does not exist"),
        (["latin1.txt"], "latin1.txt, line 2: byte 0xf1 at offset 2 of the line is not UTF-8"),
        (["."], "is a folder; a text file is needed"),
        (["--pieces"], "--pieces, --attention and --alignment belong to --json"),
        (["--seed", "1"], "seed does not go with the decoder beam, but with sampling"),
        (["--decoder", "sampling", "--temperature", "inf"], "--temperature must be a finite number, not inf"),
        (["--length-penalty=-1e6"], "--length-penalty must be a number from -100 to 100, not -1e+06"),
        (["--min-length", "3", "--max-length", "2"], "--min-length 3 is more than --max-length 2"),
        (["--precision", "int8", "--decoder", "sampling"], "--precision int8 goes with --decoder beam alone"),
        (["--precision", "int4"], "is not one of 'float32', 'int8'"),
        (["--n-best", "0"], "greater than or equal to 1"),
    ],
    ids=str,
)
def test_wrong_calls_get_one_sentence(translate: Command, arguments: list[str], message: str) -> None:
    Path("latin1.txt").write_bytes(b"one\nan\xf1o\n")
    done = translate(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.errors
    assert done.errors.count("\n") == 1


@pytest.mark.usefixtures("small_run")
def test_two_seeds_translate_together(command: Command, trained_run: Path) -> None:
    """They have the same vocabulary, since it depends on the text alone; another text has another."""
    assert command("train", "recipe.yaml", "name=second", "seed=2", "max_updates=8").code == 0
    write_lines(Path("in.txt"), LINES)
    options = ("--json", "--n-best", "2")
    alone, second, together = (
        [
            [one["score"] for one in json.loads(line)["translations"]]
            for line in command("translate", *runs, "in.txt", *options).out.splitlines()
        ]
        for runs in (["runs/small"], ["runs/second"], ["runs/small", "runs/second"])
    )
    assert list(map(len, together)) == [2, 1, 1, 2, 2]
    assert alone[0] != together[0] != second[0]
    done = command("translate", "runs/small", "runs/second", stdin=b"I eat.\n")
    assert (done.code, done.out.count("\n")) == (0, 1)
    for runs, message in (
        (["runs/small", str(trained_run)], "cannot translate together: they have different vocabularies"),
        (["runs/small", "in.txt", "in.txt"], "in.txt is not a run folder"),
        (["runs/small", "runs/nowhere"], "runs/nowhere does not exist"),
    ):
        done = command("translate", *runs)
        assert (done.code, done.errors.count("\n")) == (2, 1)
        assert message in done.errors


def test_a_damaged_run_is_named(command: Command, trained_run: Path) -> None:
    shutil.copytree(trained_run, "my model")
    for name, content, message in (
        ("checkpoints", None, "has no whole checkpoint; go on with: qknorm train 'my model' --resume"),
        ("corpus.json", "[]", "corpus.json is damaged"),
        ("confidence.json", "[]", "confidence.json is damaged"),
        ("tokenizer.json", "{}", "tokenizer.json is damaged"),
        ("tokenizer.json", None, "tokenizer.json does not exist"),
        ("pairs.json", "{", "pairs.json is damaged"),
        ("recipe.yaml", None, "is not a run folder"),
    ):
        damaged = Path("my model", name)
        whole = damaged.rename("whole")
        if content is not None:
            damaged.write_text(content)
        done = command("translate", "my model")
        damaged.unlink(missing_ok=True)
        whole.rename(damaged)
        assert (done.code, done.out) == (2, "")
        assert message in done.errors
        assert done.errors.count("\n") == 1


def test_a_very_long_line(trained_run: Path, tmp_path: Path) -> None:
    """36,000 characters of sentences, and 20,000 without an end or even a space: noted, never cut short."""
    write_lines(tmp_path / "long.txt", ["I eat.", "The house is red. " * 2000, "house" * 4000, "I eat."])
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = run("translate", str(trained_run), "long.txt", "--beam-size", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    out = done.stdout.split("\n")[:-1]
    assert len(out) == 4
    assert out[0] == out[3]
    translator = Translator.load(trained_run)
    greedy = translator.with_decoder(make_decoder("beam", translator.settings, n_best=1, beam_size=1))
    assert out[1] == " ".join(greedy.translate(["The house is red."]) * 2000)
    assert len(out[2]) > 1000
    assert done.stderr.startswith("qknorm: line 3: a sentence of more than")
    assert done.stderr.count("\n") == 1
    assert max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) < 2_000_000  # kilobytes


def test_an_endless_stream_is_answered_as_it_comes_and_may_be_left(trained_run: Path) -> None:
    command = [sys.executable, "-m", "qknorm", "translate", str(trained_run), "--batch-size", "1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"I eat.\n")
        process.stdin.flush()
        assert process.stdout.readline()  # while the input is still open
        process.stdout.close()  # as `head -1` does
        _, errors = process.communicate(b"I eat.\n" * 10)
    assert errors == b""
    assert process.returncode == 1


def test_a_terminal_shows_progress(translate: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(Path("in.txt"), ["I eat."] * 5)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    done = translate("in.txt")
    assert done.out.count("\n") == 5
    assert "5/5" in done.errors
    assert "lines/s" in done.errors


CATALOGUE = ["The house is <b>%s</b>.", "  I eat {name}\u00a0! ", "I eat.", "%d of %s"]
KEEPING = ("keep=true", "tidy=true", "taught=20", "name=kept", "bpe_dropout=0.1")


def test_placeholders_and_terms_come_through_a_real_model_or_a_note_says_so(command: Command, workplace: Path) -> None:
    """It has learned next to nothing, and still damages none of them."""
    assert command("train", "recipe.yaml", *KEEPING).code == 0
    run, kept = "runs/kept", ["<b>", "%s", "</b>", "%d", "{name}"]
    assert "keep: true" in (workplace / run / "recipe.yaml").read_text()
    write_lines(Path("strings.txt"), CATALOGUE)
    done = command("translate", run, "strings.txt")
    assert done.code == 0
    out = done.out.split("\n")[:-1]
    for line, translation in zip(CATALOGUE, out, strict=True):
        assert [translation.count(text) for text in kept] == [line.count(text) for text in kept]
        assert [word for word in translation if word in "<%"] == [word for word in line if word in "<%"]
    assert out[1].startswith("  ")
    assert out[1].endswith(" ")
    as_json = command("translate", run, "strings.txt", "--json", "--pieces", "--alignment").out
    told = [json.loads(line) for line in as_json.split("\n")[:-1]]
    assert [line["translations"][0]["text"] for line in told] == out
    numbers = [line["line"] for line in told if "notes" in line]
    assert re.findall(r"line (\d): what is to be kept", done.errors) == [str(number) for number in numbers]

    write_lines(Path("terms.csv"), ["en;gl", "house;edificio", "eat;xantar"])
    done = command("translate", run, "strings.txt", "--glossary", "terms.csv", "--keep", r"\bI\b", "--n-best", "2")
    first, second = (done.out.split("\n")[row].split("\t")[2] for row in (0, 4))
    assert "edificio" in first
    assert {"xantar", "I"} <= {*re.findall(r"\w+", second)}


def test_a_glossary_that_cannot_be_used_is_one_sentence(translate: Command) -> None:
    write_lines(Path("terms.tsv"), ["house\tcasa", "house\tfogar"])
    done = translate("--glossary", "terms.tsv", stdin=b"I eat.\n")
    assert (done.code, done.out) == (2, "")
    assert done.errors == (
        "qknorm: terms.tsv, line 2: 'house' stands in line 1, too, where it is 'casa': only one of them can be used\n"
    )
    done = translate("--keep", "x", stdin=b"I eat.\n")
    assert (done.code, done.errors.count("\n")) == (2, 1)
    assert "this model learned without placeholders (data.keep)" in done.errors
