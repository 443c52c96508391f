"""Models, run without torch: right in any case, and taken whole where that is claimed."""

from __future__ import annotations

from delegraph_testkit.bench import Bench, Stored
from delegraph_testkit.claims import FEATURES
from delegraph_testkit.outcomes import Declined, Unclaimed
from delegraph_testkit.running import check_results, run

__all__ = ["model_is_right"]


def model_is_right(bench: Bench, stored: Stored, feature: str = "") -> None:
    """The model gives torch's results in every call, and is taken whole if its feature is claimed."""
    check_results(bench, stored, run(stored))
    facts, claimed = stored.facts, feature in bench.subject.claims.features
    whole = bool(facts.taken) and not facts.left
    if claimed:
        assert whole, f"{feature} is claimed, but not all of the model is taken: {facts.why_left}"
        assert feature in facts.features, f"{feature} is claimed ({FEATURES[feature]}), and no delegate makes use of it"
    elif not facts.taken:
        raise Declined(facts.why_left)
    elif whole and feature in facts.features:
        raise Unclaimed(f"it is taken whole and right: {feature} may be claimed")
