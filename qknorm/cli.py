"""The command `qknorm`.

A wrong input ends with one sentence on standard error and exit code 2; a traceback appears only with --debug.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from typing import Annotated

from qknorm.errors import NO_TOOLKIT, InputError

try:
    import typer

    from qknorm.screen import escaped
except ImportError:
    print(f"qknorm: {NO_TOOLKIT}", file=sys.stderr)
    sys.exit(2)

import qknorm
from qknorm.commands._two_files import TwoFilesCommand
from qknorm.commands.compare import compare
from qknorm.commands.data import app as data_app
from qknorm.commands.generate import generate
from qknorm.commands.quickstart import quickstart
from qknorm.commands.report import report
from qknorm.commands.reproduce import reproduce
from qknorm.commands.score import score
from qknorm.commands.sweep import sweep
from qknorm.commands.synthesize import synthesize
from qknorm.commands.train import train
from qknorm.commands.translate import translate
from qknorm.memory import keep_freed_memory

app = typer.Typer(
    help="Attention with normalised queries and keys, and what it makes possible with little data.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(data_app, name="data")
app.command(short_help="Train a translator or a language model, and score it.", cls=TwoFilesCommand)(train)
app.command(short_help="Translate lines of text.")(translate)
app.command(short_help="Translate text to learn from it.")(synthesize)
app.command(short_help="Score translations: BLEU, chrF, TER.")(score)
app.command(short_help="Tell whether systems differ by more than chance.")(compare)
app.command(short_help="Let a language model continue a prompt.")(generate)
app.command(short_help="Train a grid of models and compare them.")(sweep)
app.command(short_help="Train what a table of the papers needs, and print it.")(reproduce)
app.command(short_help="Write one HTML page about a folder of runs.")(report)
app.command(short_help="Train two translators side by side, in ten minutes.")(quickstart)

_BROKEN_PIPE = 141  # what a shell reports of a program that such a pipe ended

_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def _print_version(requested: bool) -> None:
    if requested:
        print(f"qknorm {qknorm.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options that stand before a command; --debug may stand anywhere and is taken out by `main`."""


def main() -> None:
    """Run the command and turn errors into exit codes."""
    keep_freed_memory()
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    warnings.formatwarning = lambda message, *_: f"qknorm: {str(message).removeprefix('qknorm: ')}\n"
    _show_news()
    try:
        code = app(arguments, prog_name="qknorm", standalone_mode=False) or 0
        sys.stdout.flush()
        sys.exit(code)
    except BrokenPipeError:  # whoever read the output has seen enough, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end of the program
        sys.exit(_BROKEN_PIPE)
    except (InputError, OSError, _UsageError) as error:
        if debug:
            raise
        print(f"qknorm: {escaped(_sentence(error))}", file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError:  # other packages bring typer without the rest of the toolkit
        if debug:
            raise
        print(f"qknorm: {NO_TOOLKIT}", file=sys.stderr)
        sys.exit(2)


def _show_news() -> None:
    """What the library below has to say, such as that it compiles its kernels, goes to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("qknorm: %(message)s"))
    news = logging.getLogger("qknorm")
    news.addHandler(handler)
    news.setLevel(logging.INFO)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{where}"
    message: str = error.format_message() if hasattr(error, "format_message") else str(error)
    return message if message.strip() else "no command was given; try: qknorm --help"
