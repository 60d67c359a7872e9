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
        tensors = [
            {"name": t.name, "type": t.type.name, "shape": list(t.shape), "bytes": t.nbytes}
            for t in file.tensors.values()
        ]
        kinds = Counter(str(t["type"]) for t in tensors)
        total = sum(t.nbytes for t in file.tensors.values())
        if as_json:
            print(json.dumps({"version": file.version, "keys": keys, "tensors": tensors}))
            return 0
        print(f"{path}: GGUF version {file.version}, {file.architecture}")
        for key, value in keys.items():
            print(f"  {key} = {value}")
        print(f"{len(tensors)} tensors, {total:,} bytes: "
              + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()))
        for t in tensors:
            shape = " x ".join(str(n) for n in t["shape"])
            print(f"  {t['name']:<40} {t['type']:<8} {shape}")
    return 0


def _short(value: Any) -> Any:
    """A value as JSON data; long arrays and texts by their first part and length."""
    if isinstance(value, str):
        return value if len(value) <= 400 else f"{value[:400]}… ({len(value)} characters)"
    if hasattr(value, "__len__"):
        head = [v.item() if hasattr(v, "item") else v for v in value[:6]]
        return head if len(value) <= 6 else f"{head} … ({len(value)} elements)"
    return value
