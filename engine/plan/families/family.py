"""What a model family may change, as data. `build.py` does the rest.

The engine runs one graph. A family says which tensors its blocks have beyond the common ones, and
which metadata keys would change the maths away from that graph: such a key may only hold a value
that leaves the graph as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KeyValue = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Family:
    """Keys are written without the architecture prefix (`rope.freq_base`).

    fixed        key -> the values that mean what the graph does anyway; absent is always allowed
    informative  keys that describe the training or are unused by this family: any value
    """

    architecture: str
    fixed: Mapping[str, tuple[KeyValue, ...]] = field(default_factory=dict)
    informative: frozenset[str] = frozenset()
