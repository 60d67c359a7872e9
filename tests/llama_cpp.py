"""llama.cpp as a witness: its server on the same file, through the xllamacpp wheel."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xllamacpp
from numpy.typing import NDArray


class LlamaCpp:
    """llama.cpp's server on a file, by HTTP on the loopback. It lives as long as the object."""

    def __init__(
        self, path: Path, context: int = 64, threads: int = 1, *, repack: bool = True
    ) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = context
        params.n_parallel = 1
        params.cpuparams.n_threads = threads
        params.warmup = False
        params.no_extra_bufts = not repack  # of weights, into memory beside the mapped file
        self._server = xllamacpp.Server(params)

    def post(self, route: str, **body: Any) -> Any:
        request = urllib.request.Request(
            self._server.listening_address + route,
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=600) as response:
            return json.load(response)

    def tokenize(self, text: str, *, special: bool, bos: bool = False) -> list[int]:
        body = dict(content=text, add_special=bos, parse_special=special)
        return list(self.post("/tokenize", **body)["tokens"])

    def complete(self, prompt: Sequence[int], tokens: int) -> str:
        """The greedy continuation of `prompt`."""
        body = dict(prompt=list(prompt), n_predict=tokens, temperature=0.0, cache_prompt=True)
        return str(self.post("/completion", **body)["content"])

    def log_probabilities(
        self, prompt: Sequence[int], vocab: int, letter: int
    ) -> NDArray[np.float64]:
        """[vocab]: of every token behind `prompt`, before any sampling rule.

        `letter` is the id of some printable token: the server reports probabilities only beside
        text, so that token is made to be drawn, which leaves the probabilities as they are.
        """
        answer = self.post(
            "/completion", prompt=list(prompt), n_predict=1, n_probs=vocab, cache_prompt=True,
            temperature=0.0, logit_bias=[[letter, 1000.0]], post_sampling_probs=False,
        )  # fmt: skip
        out = np.full(vocab, -np.inf)
        for entry in answer["completion_probabilities"][0]["top_logprobs"]:
            out[entry["id"]] = entry["logprob"]
        return out
