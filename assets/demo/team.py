"""Two processes share one training step, each runs forward and backward on half of the batch.

Each computes on one thread. Two jobs that meet once per step lose far less on a busy machine than
two threads that meet in every operation, or that wait for the interpreter lock.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch
import torch.multiprocessing as processes
import torch.nn.functional as F
from corpus import SKILLS, Batch
from model import DemoModel
from routing import imbalance, mutual_information
from tokenizers import Tokenizer
from torch import Tensor

BALANCE = 0.01

BatchMaker = Callable[[Tokenizer, int, int], Batch]


@dataclass
class Result:
    """What one process hands back: per answer token its loss and skill, the routing terms (2), and
    the gradients in parameter order."""

    token_loss: Tensor
    skills: Tensor
    terms: Tensor
    grads: list[Tensor]


def shared_zeros(like: Tensor) -> Tensor:
    """Zeros of the same shape that another process can write to."""
    zeros = torch.zeros(like.shape)
    zeros.share_memory_()  # type: ignore[no-untyped-call]
    return zeros


def keep_memory() -> None:
    """Ask glibc to reuse large buffers instead of returning them to the system at every step."""
    if sys.platform == "linux":
        libc = ctypes.CDLL("libc.so.6")
        for option, value in ((-4, 0), (-1, 2**31 - 1), (-2, 2**28)):
            libc.mallopt(option, value)


def work(model: DemoModel, batch: Batch, separation: float) -> Result:
    """Forward and backward of one half of the step; `separation` weighs the skill information."""
    ids = torch.from_numpy(batch.ids)
    hidden, routings = model(ids)
    wanted = torch.from_numpy(batch.answers[:, 1:])
    logits = model.logits(hidden[:, :-1][wanted])
    token_loss = F.cross_entropy(logits, ids[:, 1:][wanted], reduction="none")
    skills = torch.from_numpy(batch.skills)
    flat = skills.flatten()
    information = [mutual_information(r.probs, flat, len(SKILLS)) for r in routings]
    balance = [imbalance(r) for r in routings]
    terms = torch.stack((torch.stack(information).mean(), torch.stack(balance).mean()))
    loss = token_loss.mean() - separation * terms[0] + BALANCE * terms[1]
    grads = torch.autograd.grad(loss, list(model.parameters()))
    return Result(token_loss.detach(), skills[:, 1:][wanted], terms.detach(), list(grads))


def serve(
    connection: Connection,
    model: DemoModel,
    grads: list[Tensor],
    tokenizer: str,
    make: BatchMaker,
) -> None:
    """The second process: a step number and a weight come in, gradients go to shared memory."""
    torch.set_num_threads(1)
    keep_memory()
    own = Tokenizer.from_str(tokenizer)
    while (order := connection.recv()) is not None:
        step, separation = order
        result = work(model, make(own, step, 1), separation)
        for shared, grad in zip(grads, result.grads, strict=True):
            shared.copy_(grad)
        connection.send([x.numpy() for x in (result.token_loss, result.skills, result.terms)])


class Team:
    """This process and a second one that shares the weights of the model."""

    def __init__(self, model: DemoModel, tokenizer: Tokenizer, make: BatchMaker) -> None:
        self.model = model.share_memory()
        self.tokenizer = tokenizer
        self.make = make
        self.grads = [shared_zeros(p) for p in model.parameters()]
        self.connection, theirs = processes.Pipe()
        context = processes.get_context("spawn")
        arguments = (theirs, model, self.grads, tokenizer.to_str(), make)
        self.process = context.Process(target=serve, args=arguments, daemon=True)
        self.process.start()

    def step(self, step: int, separation: float) -> list[Result]:
        """Both halves; the mean of the gradients is left in the parameters."""
        self.connection.send((step, separation))
        mine = work(self.model, self.make(self.tokenizer, step, 0), separation)
        parts = [torch.from_numpy(array) for array in self.connection.recv()]
        theirs = Result(parts[0], parts[1], parts[2], self.grads)
        for parameter, a, b in zip(self.model.parameters(), mine.grads, theirs.grads, strict=True):
            parameter.grad = (a + b) / 2
        return [mine, theirs]

    def close(self) -> None:
        """End the second process."""
        self.connection.send(None)
        self.process.join()
