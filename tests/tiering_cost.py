"""What tiering costs when every expert is resident: the store, beside one that does nothing.

    python -m tests.tiering_cost MODEL --threads 1

Both run the same model in one process, some tokens each in turns. The store that does nothing keeps
the table of addresses and neither counts nor decides nor learns. Figures are medians
[least-greatest] of milliseconds per token, and what the real one takes more.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import Any

import numpy as np

from engine.open_model import open_model
from engine.settings import EngineSettings


class Nothing:
    """Stands in for a store whose experts all have an address."""

    def begin_step(self, *_: Any) -> None:
        """Nothing."""

    found = end_step = begin_step


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", default="")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=48, help="of each in a round")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = EngineSettings(
            model=args.model, budget="100%", ctx=args.tokens + 8, threads=args.threads,
            profile_dir=folder,
        )  # fmt: skip
        engine = open_model(settings)
        session, model = engine.session, engine.session.model
        ids = np.random.default_rng(0).integers(0, engine.plan.vocab, args.tokens).tolist()
        stores: dict[str, Any] = {"tiered": engine.store, "nothing": Nothing()}
        spent: dict[str, list[float]] = {name: [] for name in stores}
        for turn in range(-1, args.rounds):  # the first one maps pages
            for name in sorted(stores, reverse=turn % 2 == 0):
                model._store = stores[name]
                session.tokens.clear()
                start = time.perf_counter()
                for token in ids:
                    session.append(token)
                    engine.store.fill(0.02)
                if turn >= 0:
                    spent[name].append((time.perf_counter() - start) / len(ids) * 1e3)
        engine.close(learn=False)
    for name, values in spent.items():
        print(
            f"{name}: {statistics.median(values):.3f} [{min(values):.3f}-{max(values):.3f}] "
            "ms per token"
        )
    pairs = [a / b - 1 for a, b in zip(spent["tiered"], spent["nothing"], strict=True)]
    print(f"tiering costs {statistics.median(pairs):.2%} (median of {len(pairs)} pairs)")


if __name__ == "__main__":
    main()
