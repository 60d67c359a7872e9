"""`stoker inspect`: what a GGUF file holds."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from engine.gguf.reader import open_gguf


def inspect(path: str, as_json: bool) -> int:
    """Print keys and tensors of a file, also of one that Stoker cannot run."""
    with open_gguf(path) as file:
        keys = {key: _short(file.metadata[key]) for key in file.metadata}
        tensors = file.tensors.values()
        if as_json:
            rows = [
                {"name": t.name, "type": t.type_name, "shape": t.shape, "bytes": t.nbytes}
                for t in tensors
            ]
            print(json.dumps({"version": file.version, "keys": keys, "tensors": rows}))
            return 0
        print(f"{path}: GGUF version {file.version}, {file.architecture}")
        for key, value in keys.items():
            print(f"  {key} = {value}")
        kinds = Counter(t.type_name for t in tensors).most_common()
        total = sum(t.nbytes for t in tensors)
        print(
            f"{len(tensors)} tensors, {total:,} bytes: " + ", ".join(f"{n} {k}" for k, n in kinds)
        )
        for t in tensors:
            print(f"  {t.name:<40} {t.type_name:<8} {' x '.join(map(str, t.shape))}")
    return 0


def _short(value: Any) -> Any:
    """A value as JSON data; long arrays and texts by their first part and length."""
    if isinstance(value, str):
        return value if len(value) <= 400 else f"{value[:400]}… ({len(value)} characters)"
    if hasattr(value, "__len__"):
        head = [v.item() if hasattr(v, "item") else v for v in value[:6]]
        return head if len(value) <= 6 else f"{head} … ({len(value)} elements)"
    return value
