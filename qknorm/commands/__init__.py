"""Groups of commands, each a Typer application that `cli.py` hangs into `qknorm`."""
