"""The policies by name."""

from __future__ import annotations

from engine.tiers.policies.hot_score import HotScorePolicy
from engine.tiers.policies.lru import LruPolicy
from engine.tiers.policies.pool import PoolPolicy
from engine.tiers.policies.spark import SparkPolicy
from engine.tiers.policy import Policy

POLICIES: dict[str, type[Policy]] = {
    "pool": PoolPolicy,
    "lru": LruPolicy,
    "hot-score": HotScorePolicy,
    "spark": SparkPolicy,
}
