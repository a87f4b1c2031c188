"""The one exception that the command line shows without a traceback."""


class InputError(Exception):
    """What the user gave cannot be used. The message is one sentence: what is wrong, where, and what to do."""
