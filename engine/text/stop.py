"""Stop strings over a stream of text: nothing of a stop string is ever let through."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import RequestError


class StopStrings:
    """Lets text through up to the first stop string, however the text is cut into pieces.

    The first stop string is the one that is complete first; of several that end at the same
    character, the longest. Text that may be the beginning of a stop string is held back.
    Raises RequestError for an empty stop string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise RequestError("stop holds an empty string", "Leave it out")
        self._stops = tuple(stops)
        self._prefixes = frozenset(s[:n] for s in stops for n in range(1, len(s)))
        self._longest = max(map(len, stops), default=1) - 1  # of the prefixes
        self._held = ""
        self.matched: str | None = None  # the stop string that was found

    def push(self, text: str) -> str:
        """The text that is final now; "" once a stop string was found."""
        if self.matched is not None:
            return ""
        text = self._held + text
        found = [(at + len(s), at, s) for s in self._stops if (at := text.find(s)) >= 0]
        if found:
            _, start, self.matched = min(found)
            self._held = ""
            return text[:start]
        for length in range(min(self._longest, len(text)), 0, -1):
            if text[-length:] in self._prefixes:
                self._held = text[-length:]
                return text[:-length]
        self._held = ""
        return text

    def finish(self) -> str:
        """What was held back, when no more text comes."""
        rest, self._held = self._held, ""
        return rest
