"""The llama.cpp of the xllamacpp wheel, spoken to as if it were its llama-bench.

    python -m tests.llama_bench -m MODEL -t THREADS -p PROMPT -n ANSWER -d DEPTH -r 1 -o json

For `tests.peer_speed` where no llama-bench is at hand. One warm-up run, then one that is measured,
through the server, with greedy sampling.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from tests.llama_cpp import LlamaCpp


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-m", type=Path, required=True)
    parser.add_argument("-t", type=int, default=1)
    parser.add_argument("-p", type=int, default=512)
    parser.add_argument("-n", type=int, default=0)
    parser.add_argument("-d", "--n-depth", type=int, default=0)
    parser.add_argument("-r", type=int, default=1)
    parser.add_argument("-o", default="json")
    parser.add_argument("--no-repack", action="store_true", help="keep to the mapped file")
    args = parser.parse_args()
    tokens = args.n_depth + max(args.p, 1)
    server = LlamaCpp(args.m, tokens + args.n + 64, args.t, repack=not args.no_repack)
    for seed in range(2):
        prompt = np.random.default_rng(seed).integers(0, 2000, tokens).tolist()
        timings = server.post(
            "/completion", prompt=prompt, n_predict=args.n + 1, temperature=0.0, ignore_eos=True,
            cache_prompt=False, samplers=[],
        )["timings"]  # fmt: skip
    speed = timings["predicted_per_second" if args.n else "prompt_per_second"]
    json.dump([{"avg_ts": speed}], sys.stdout)


if __name__ == "__main__":
    main()
