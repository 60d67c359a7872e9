"""A scripted engine that speaks the protocol: standard library and engine.protocol only.

It serves a made-up model whose answers are scripted, so that tests decide what the window meets:
a slow load, a failing file, a fast stream, a death in the middle of an answer.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine import protocol as p

MIB = 1 << 20
CODE_ANSWER = """The sieve keeps a list of candidates and crosses out multiples:

```python
def primes(limit: int) -> list[int]:
    \"\"\"All primes below a limit.\"\"\"
    sieve = [True] * limit
    for n in range(2, int(limit**0.5) + 1):
        if sieve[n]:  # cross out its multiples
            sieve[n * n :: n] = [False] * len(sieve[n * n :: n])
    return [n for n in range(2, limit) if sieve[n]]
```

It needs **O(n log log n)** steps. Two remarks:

1. The loop ends at the square root, because a larger factor has a smaller partner.
2. `sieve[n * n :: n]` starts at the square: smaller multiples are crossed out already.

| limit | primes | time |
|------:|-------:|-----:|
| 1 000 | 168 | 0.1 ms |
| 1 000 000 | 78 498 | 48 ms |
"""
THOUGHTS = (
    "Let me think about it for a while.\n\nThe question asks for a number. Deep Thought needed "
    "seven and a half million years for it, and <b>this</b> is no markup."
)
ANSWERS = {
    "capital": "The capital of France is **Paris**.",
    "slider": "The slider decides how much memory the experts may take. More memory means that "
    "more experts stay close, so the answer comes faster. The answer itself is *the same at every "
    "position*.",
    "code": CODE_ANSWER,
    "long": " ".join(f"word{n}" for n in range(4000)),
    "think": "It is 42.",
    "weather": "Let me look that up.",
}


class Model:
    """Tiers and uses of the made-up model."""

    def __init__(self, layers: int, experts: int, topics: int = 4) -> None:
        self.layers, self.experts = layers, experts
        self.expert_size = 3 * MIB // 4
        total = layers * experts
        self.base = 96 * MIB
        self.slots = total * 2 // 5
        self.random = random.Random(7)
        self.lock = threading.Lock()
        self.tiers = [[p.Tier.FROZEN] * experts for _ in range(layers)]
        self.score = [[self.random.random() ** 4 for _ in range(experts)] for _ in range(layers)]
        self.uses: list[tuple[int, int]] = []
        self.moves: list[tuple[int, int, int]] = []
        self.hits = [0, 0, 0, 0]
        self.context_used = 0
        self.state = "idle"
        self.rate = 0.0
        self.place()

    def place(self) -> None:
        """Give the best experts the slots, two thirds of them hot; some of the rest are cold."""
        order = sorted(
            ((self.score[i][j], i, j) for i in range(self.layers) for j in range(self.experts)),
            reverse=True,
        )
        cold = self.slots + (len(order) - self.slots) * 2 // 3
        for n, (_, i, j) in enumerate(order):
            tier = p.Tier.HOT if n < self.slots * 2 // 3 else p.Tier.WARM
            if n >= self.slots:
                tier = p.Tier.COLD if n < cold else p.Tier.FROZEN
            if self.tiers[i][j] != tier:
                self.tiers[i][j] = tier
                self.moves.append((i, j, int(tier)))

    def step(self) -> None:
        """One token: every layer uses four experts."""
        with self.lock:
            for i in range(self.layers):
                for j in self.random.choices(range(self.experts), weights=self.score[i], k=4):
                    self.uses.append((i, j))
                    self.hits[self.tiers[i][j]] += 1
                    self.score[i][j] = min(2.0, self.score[i][j] * 1.05)
            if self.random.random() < 0.2:
                for row in self.score:
                    row[self.random.randrange(self.experts)] *= 3
                self.place()
            self.context_used += 1

    def counts(self) -> p.TierCounts:
        n = [0, 0, 0, 0]
        for row in self.tiers:
            for tier in row:
                n[tier] += 1
        return p.TierCounts(hot=n[3], warm=n[2], cold=n[1], frozen=n[0])

    def budget(self) -> p.BudgetStatus:
        c, each, total = self.counts(), self.expert_size, self.layers * self.experts
        sizes = p.TierCounts(c.hot * each, c.warm * each, c.cold * each, c.frozen * each)
        arena = self.slots * each
        return p.BudgetStatus(
            self.base + arena,
            60 * MIB,
            16 * MIB,
            12 * MIB,
            8 * MIB,
            arena,
            total * each,
            self.base,
            self.base + total * each,
            self.slots,
            c,
            sizes,
        )

    def forecast(self) -> p.Forecast:
        """Twice as fast with everything, and most of that with half of it."""
        total = self.layers * self.experts
        points = []
        for percent in (0, 5, 10, 20, 30, 40, 50, 60, 80, 100):
            hits = 1 - (1 - percent / 100) ** 3
            arena = total * self.expert_size * percent // 100
            points.append(
                p.ForecastPoint(
                    self.base + arena, total * percent // 100, hits, 1 - hits, 6 + 6 * hits
                )
            )
        return p.Forecast(tuple(points), 0.5, 9.0, 8.5, "made up")

    def status(self) -> p.Status:
        h = self.hits
        return p.Status(
            self.state,
            0,
            0.0,
            self.rate,
            min(self.context_used, 1024),
            1024,
            p.TierCounts(hot=h[3], warm=h[2], cold=h[1], frozen=h[0]),
            self.slots * self.expert_size,
            640 * MIB,
            9 << 30,
        )


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, options: argparse.Namespace, token: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.options = options
        self.token = token
        self.model = Model(options.layers, options.experts)
        self.started = time.monotonic()

    def health(self) -> p.Health:
        o, m = self.options, self.model
        elapsed = time.monotonic() - self.started
        total = m.base + m.layers * m.experts * m.expert_size
        if o.fail and elapsed >= o.load:
            return p.Health(p.PROTOCOL_VERSION, "failed", 0, total, None, o.fail)
        if elapsed < o.load:
            share = elapsed / o.load
            phase = "reading" if share < 0.15 else "weights" if share < 0.4 else "experts"
            return p.Health(p.PROTOCOL_VERSION, phase, int(total * share), total)
        info = p.ModelInfo(
            "fake",
            "Fake MoE",
            "qwen3moe",
            o.model,
            1024,
            m.layers,
            m.experts,
            4,
            m.layers * m.experts * m.expert_size,
            m.base,
            o.residency_bias,
        )
        return p.Health(p.PROTOCOL_VERSION, "ready", total, total, info)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        print(f"{self.command} {self.path} {args[1]}", file=sys.stderr, flush=True)

    def do_GET(self) -> None:
        if not self.allowed():
            return
        if self.path == "/health":
            self.answer(200, p.to_json(self.server.health()))
        elif self.path == "/budget":
            self.answer(200, p.to_json(self.server.model.budget()))
        elif self.path == "/events":
            self.events()
        else:
            self.answer(404, {"error": {"message": "no such path"}})

    def do_POST(self) -> None:
        if not self.allowed():
            return
        data = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/budget":
            self.set_budget(data)
        else:
            self.chat(data)

    def allowed(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {self.server.token}":
            return True
        self.answer(401, {"error": {"message": "The token is missing or wrong."}})
        return False

    def answer(self, status: int, data: Any) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def set_budget(self, data: dict[str, Any]) -> None:
        model, status = self.server.model, self.server.model.budget()
        wish = int(data["budget"])
        if self.server.options.refuse_budget or not status.least <= wish <= status.most:
            message = "The budget cannot be used. Choose one between least and most."
            self.answer(400, {"error": {"message": message}})
            return
        time.sleep(self.server.options.budget_delay)
        with model.lock:
            model.slots = (wish - model.base) // model.expert_size
            model.place()
        self.answer(200, p.to_json(model.budget()))

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, name: str, value: Any) -> None:
        self.wfile.write(f"event: {name}\ndata: {json.dumps(p.to_json(value))}\n\n".encode())
        self.wfile.flush()

    def events(self) -> None:
        self.stream()
        server, model = self.server, self.server.model
        try:
            while (health := server.health()).phase not in ("ready", "failed"):
                self.event("health", health)
                time.sleep(0.05)
            self.event("health", health)
            if health.phase == "failed":
                time.sleep(3600)
            self.event("budget", model.budget())
            tiers = bytes(tier for row in model.tiers for tier in row)
            self.event("residency", p.Residency(model.layers, model.experts, tiers))
            if server.options.forecast:
                self.event("forecast", model.forecast())
            tick = 0
            while True:
                with model.lock:
                    uses, model.uses = model.uses, []
                    moves, model.moves = model.moves, []
                if uses or moves:
                    self.event("delta", p.ResidencyDelta(tuple(moves), tuple(uses)))
                if tick % 8 == 0:
                    self.event("status", model.status())
                tick += 1
                time.sleep(0.05)
        except OSError:
            return

    def chat(self, data: dict[str, Any]) -> None:
        question = data["messages"][-1]["content"].lower()
        if "refuse" in question:
            message = "The prompt has 5000 tokens, the context holds 1024. Start a new chat."
            self.answer(400, {"error": {"message": message}})
            return
        text = next((a for word, a in ANSWERS.items() if word in question), f"You said: {question}")
        self.stream()
        try:
            self.tokens(text, question)
        except OSError:
            pass  # the window closed the connection: stop
        finally:
            self.server.model.state = "idle"

    def tokens(self, text: str, question: str) -> None:
        model, rate = self.server.model, self.server.options.rate
        model.state, model.rate = "answer", rate
        pieces = [text[i : i + 4] for i in range(0, len(text), 4)]
        begin = time.monotonic()
        if "think" in question:
            for number, word in enumerate(THOUGHTS.split(" ")):
                self.chunk({"reasoning_content": " " * bool(number) + word})
                time.sleep(0.02)
        for number, piece in enumerate(pieces):
            model.step()
            self.chunk({"content": piece})
            if "die" in question and number == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(max(0.0, begin + (number + 1) / rate - time.monotonic()))
        if "weather" in question:
            self.call(0, "get_weather", {"city": "Zürich", "days": 3})
            self.call(1, "get_time", {})
        self.chunk({}, "stop")
        usage = dict(prompt_tokens=9, completion_tokens=len(pieces), total_tokens=9 + len(pieces))
        self.raw({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def call(self, index: int, name: str, arguments: dict[str, Any]) -> None:
        text = json.dumps(arguments)
        for function in ({"name": name, "arguments": ""}, *({"arguments": c} for c in text)):
            self.chunk({"tool_calls": [{"index": index, "function": function}]})

    def chunk(self, delta: dict[str, Any], reason: str | None = None) -> None:
        self.raw({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    def raw(self, data: Any) -> None:
        bias = self.server.options.residency_bias
        if bias:
            data = {**data, "approximate": True, "residency_bias": bias}
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())
        self.wfile.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--experts", type=int, default=24)
    parser.add_argument("--load", type=float, default=0.0, help="seconds")
    parser.add_argument("--rate", type=float, default=60.0, help="tokens per second")
    parser.add_argument("--fail", default="", help="the error of the load")
    parser.add_argument("--exit", default="", help="end at once with this line")
    parser.add_argument("--greeting", default="", help="in place of the first line")
    parser.add_argument("--residency-bias", type=float, default=0.0)
    parser.add_argument("--refuse-budget", action="store_true")
    parser.add_argument("--budget-delay", type=float, default=0.0)
    parser.add_argument("--forecast", action="store_true")
    parser.add_argument("--deaf", action="store_true", help="ignore the end of the pipe")
    options, _ = parser.parse_known_args()
    if "bad" in Path(options.model).name:
        options.fail = "The architecture 'llama' is not supported. Choose a model with experts."
    token = sys.stdin.readline().strip()
    if options.exit:
        print(f"stoker: {options.exit}", file=sys.stderr)
        sys.exit(2)
    server = Server(options, token)
    hello = p.Listening(p.PROTOCOL_VERSION, "127.0.0.1", server.server_port, os.getpid())
    print(options.greeting or json.dumps(p.to_json(hello)), flush=True)
    print("fake engine is listening", file=sys.stderr, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # until the window is gone
    while options.deaf:
        time.sleep(1)


if __name__ == "__main__":
    main()
