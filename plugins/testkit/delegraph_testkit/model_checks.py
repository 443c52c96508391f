"""Models, run without torch: right in any case, and taken whole where that is claimed."""

from __future__ import annotations

from time import perf_counter

from delegraph_testkit.bench import Bench, Stored
from delegraph_testkit.claims import FEATURES
from delegraph_testkit.outcomes import Declined, Unclaimed
from delegraph_testkit.running import check_results, load, run

__all__ = ["composes", "model_is_right", "own_model_is_right", "speed_is_told"]


def model_is_right(bench: Bench, stored: Stored, feature: str = "") -> None:
    """The model gives torch's results in every call, and is taken whole if its feature is claimed."""
    check_results(bench, stored, run(stored))
    facts, claimed = stored.facts, feature in bench.subject.claims.features
    if claimed:
        assert facts.whole, f"{feature} is claimed, but not all of the model is taken: {facts.why_left}"
        assert feature in facts.features, f"{feature} is claimed ({FEATURES[feature]}), and no delegate makes use of it"
    elif not facts.taken:
        raise Declined(facts.why_left)
    elif facts.whole and feature in facts.features:
        raise Unclaimed(f"it is taken whole and right: {feature} may be claimed")


def own_model_is_right(bench: Bench, stored: Stored) -> None:
    """The author's own model is taken whole, and gives torch's results."""
    facts = stored.facts
    assert facts.whole, f"{stored.name} is claimed, and not taken whole: {facts.why_left}"
    check_results(bench, stored, run(stored))


def composes(bench: Bench, stored: Stored) -> None:
    """Beside a backend that keeps convolutions and linear layers whole, results are torch's."""
    check_results(bench, stored, run(stored))


def speed_is_told(bench: Bench, stored: Stored) -> str:
    """How long it takes to load and to run, in the report; no time is a fault."""
    start = perf_counter()
    loaded = load(stored)
    ready = perf_counter()
    for _ in range(20):
        loaded(stored.calls[0])
    seconds = (perf_counter() - ready) / 20
    return f"{stored.name} loads in {1e3 * (ready - start):.1f} ms and runs in {1e6 * seconds:,.0f} us"
