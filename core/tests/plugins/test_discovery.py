"""The offers that a scan finds, those that it leaves out, and the choices of the environment variables."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest

from delegraph.errors import PluginNotFound
from delegraph.plugins import PluginRegistry
from delegraph.plugins.discovery import Offer, scan, scan_undeduplicated

Install = Callable[..., Path]
NPU = {"backends": {"Npu": "npu_rt:Backend"}, "partitioners": {"npu": "npu_aot:partitioner"}}
DSP = {"backends": {"Dsp": "dsp_rt:Backend"}}


def ours(site: Path, path: list[str] | None = None) -> list[Offer]:
    return [offer for offer in scan(path) if offer.location == str(site)]


def test_an_offer_says_who_offers_what(install: Install) -> None:
    site = install("Acme.NPU", NPU, version="1.2")
    partitioner, backend = ours(site)
    assert backend == Offer("delegraph.backends", "Npu", "npu_rt:Backend", "Acme.NPU", "1.2")
    assert str(partitioner) == "partitioners:npu of Acme.NPU 1.2 (npu_aot:partitioner)"


def test_a_scan_imports_no_plug_in(install: Install) -> None:
    site = install("acme", NPU, {"npu_rt.py": "raise SystemExit", "npu_aot.py": "raise SystemExit"})
    assert len(ours(site)) == 2
    assert not {"npu_rt", "npu_aot"} & set(sys.modules)


def test_groups_of_others_are_none_of_our_business(install: Install, tmp_path: Path) -> None:
    install("acme", {"backends": {"Npu": "npu_rt:Backend"}, "no_such_group": {"x": "y:z"}})
    assert [offer.name for offer in scan([str(tmp_path / "site")])] == ["Npu"]


def test_comments_and_spaces_in_entry_points(install: Install) -> None:
    site = install("acme", {"backends": {"; off ": "a:b", "# off": "a:b", "  Npu ": "  npu_rt : Backend "}})
    assert [(offer.name, offer.value) for offer in ours(site)] == [("Npu", "npu_rt : Backend")]


def test_stale_metadata_in_front_hides_nothing(install: Install) -> None:
    """`importlib.metadata.entry_points()` reads only the first of two copies (vllm#43987)."""
    install("acme", {"backends": {"Npu": "npu_rt:Backend"}}, where="site")
    install("acme", {}, where="checkout", kind="egg-info", version="0.1")
    install("acme", {"backends": {"Old": "old:Backend"}}, where="older", kind="egg-info", version="0.0")
    assert sys.path[0].endswith("older")
    assert {"Npu", "Old"} <= {offer.name for offer in scan() if offer.distribution == "acme"}


def test_copies_of_one_offer_count_once(install: Install) -> None:
    """An editable installation has its metadata both in the checkout and in site-packages."""
    install("acme-npu", NPU, where="site")
    install("acme_npu", NPU, where="checkout", kind="egg-info")
    assert [offer.name for offer in scan() if "npu_rt" in offer.value] == ["Npu"]
    assert len([offer for offer in scan_undeduplicated() if "npu_rt" in offer.value]) == 2


def test_archives_and_other_finders(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`importlib.metadata` finds these by itself: a zip file on the path, and what a packer's own finder knows."""
    site = install("acme", NPU)
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", site)
    assert {offer.name for offer in scan([archive])} == {offer.name for offer in scan([str(site)])} != set()

    packed = list(metadata.distributions(path=[archive]))

    class Packer:
        def find_spec(self, *arguments: object) -> None:
            return None

        def find_distributions(self, context: object = None) -> Iterator[metadata.Distribution]:
            return iter(packed)

    monkeypatch.setattr(
        sys, "path", [str(tmp_path / "nothing"), *(folder for folder in sys.path if folder != str(site))]
    )
    assert "acme" not in {offer.distribution for offer in scan()}
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Packer()])
    assert "acme" in {offer.distribution for offer in scan()}


def test_the_same_directory_twice_on_the_path(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """lib and lib64 are often one directory under two names (instawow#188)."""
    site = install("acme", NPU)
    os.symlink(site, site.parent / "lib64")
    monkeypatch.syspath_prepend(str(site.parent / "lib64"))
    registry = PluginRegistry.discover()
    assert registry.find("backends", "Npu").distribution == "acme"


def test_the_order_does_not_depend_on_hash_or_path(install: Install, tmp_path: Path) -> None:
    install("zeta", {"backends": {"Same": "z:Z"}}, where="one")
    install("alpha", {"backends": {"Same": "a:A"}}, where="two")
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert scan(paths) == scan(paths[::-1])
    assert [offer.distribution for offer in scan(paths)] == ["alpha", "zeta"]


# ---- choices -------------------------------------------------------------------------------------------


OWN = {"best_fit", "greedy", "naive", "search", "constant_folding"}
"""The host's own offers, whatever is allowed beside them."""


def names(**environ: str) -> set[str]:
    return {offer.name for offer in PluginRegistry.discover(environ=environ).offers()}


@pytest.mark.parametrize("allowed", ["acme-npu", "Acme_NPU", "Npu,npu", " backends:Npu , partitioners:npu,"])
def test_the_allow_list_takes_names_ids_and_distributions(install: Install, allowed: str) -> None:
    install("acme-npu", NPU)
    install("dsp", DSP)
    assert names(DELEGRAPH_PLUGINS=allowed) == {"Npu", "npu", *OWN}


def test_the_deny_list(install: Install) -> None:
    install("acme-npu", NPU)
    install("dsp", DSP)
    assert {"npu", "Dsp"} <= names(DELEGRAPH_DISABLE_PLUGINS="backends:Npu")
    assert "Npu" not in names(DELEGRAPH_DISABLE_PLUGINS="backends:Npu")
    assert "Dsp" not in names(DELEGRAPH_PLUGINS="dsp,acme-npu", DELEGRAPH_DISABLE_PLUGINS="dsp")


def test_empty_variables_choose_nothing(install: Install) -> None:
    install("acme-npu", NPU)
    assert names(DELEGRAPH_PLUGINS="", DELEGRAPH_DISABLE_PLUGINS="") == names()


@pytest.mark.parametrize("variable", ["DELEGRAPH_PLUGINS", "DELEGRAPH_DISABLE_PLUGINS"])
def test_a_mistyped_name_is_an_error(install: Install, variable: str) -> None:
    install("acme-npu", NPU)
    with pytest.raises(PluginNotFound) as caught:
        names(**{variable: "acme-npv"})
    assert f"{variable} names 'acme-npv', which nothing installed is called; did you mean 'acme-npu'" in str(
        caught.value
    )


def test_a_preference_for_what_is_not_offered_is_an_error(install: Install) -> None:
    install("acme-npu", NPU)
    with pytest.raises(
        PluginNotFound, match=r"'other' is preferred for delegraph\.backends:Npu, but it is offered by acme"
    ):
        names(DELEGRAPH_PREFER="backends:Npu=other")
    with pytest.raises(PluginNotFound, match="but it is offered by nothing installed"):
        PluginRegistry.discover(prefer={"kernels:Npu": "acme-npu"}, environ={})


@pytest.mark.parametrize("value", ["backends:Npu", "=acme", "Npu="])
def test_a_malformed_preference_is_an_error(value: str) -> None:
    with pytest.raises(PluginNotFound, match="it has to read group:name=distribution"):
        names(DELEGRAPH_PREFER=value)


def test_a_preference_in_a_group_that_does_not_exist() -> None:
    with pytest.raises(PluginNotFound, match="there is no entry-point group 'backend'; the groups are delegraph"):
        names(DELEGRAPH_PREFER="backend:Npu=acme")
