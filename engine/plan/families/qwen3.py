"""Qwen3, dense: 0.6B to 32B. The blocks of Qwen3 MoE with one feed-forward in place of experts."""

from __future__ import annotations

from engine.plan.families.family import PLAIN_ATTENTION, Family

FAMILY = Family(architecture="qwen3", experts=False, fixed=PLAIN_ATTENTION)
