"""What a person reads on the screen: somebody's text is shown as it is, never taken for markup or terminal commands."""

from __future__ import annotations

import re
from typing import Any

from rich.console import Console
from rich.text import Text

# All control characters but tab and line feed.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Screen(Console):
    """rich's console without markup. Sentences break between words in a terminal, and not at all in a file."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        if all(isinstance(thing, str) for thing in objects):
            options.setdefault("soft_wrap", not self.is_terminal)
        super().print(*objects, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(escaped(text), **options)


def duration(seconds: float) -> str:
    """A time in the unit that somebody would say it in: 45 seconds, 3.4 minutes, 25 minutes, 3.1 hours."""
    if seconds < 119.5:
        return f"{seconds:.0f} second{'' if round(seconds) == 1 else 's'}"
    minutes = seconds / 60
    if minutes < 119.5:
        return f"{minutes:.{1 if minutes < 9.95 else 0}f} minutes"
    return f"{minutes / 60:.1f} hours"


def escaped(text: str) -> str:
    """Text whose control characters can be seen, and do nothing: \\x1b in place of an escape."""
    return _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
