"""Weights in `.ptd` files: swapping one gives the other model's outputs, to the bit, or an error; never a mix."""

from __future__ import annotations

import copy
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.models import MODELS, make
from tests.interop.swap_weights import example, models

import delegraph
from delegraph.aot import ExecutorchBackendConfig, Lowered, LoweringConfig
from delegraph.errors import InvalidExternalData, LoweringError
from delegraph.program import FlatTensor, deserialize_flat_tensor, serialize_flat_tensor
from delegraph.program.weights_origin import origin_of

Array = np.ndarray[Any, Any]
BACKENDS: dict[str, list[str]] = {"portable": [], "cpu": ["cpu"]}


class Folds(torch.nn.Module):
    """What is folded where weights are known: transposed and rearranged weights, batch norm into a convolution, a
    number that is a parameter, a weight that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
        self.norm = torch.nn.BatchNorm2d(8)
        self.lstm = torch.nn.LSTM(36, 4, batch_first=True, bidirectional=True)
        self.gru = torch.nn.GRU(8, 4, bias=False, batch_first=True)
        self.down, self.up = torch.nn.Linear(4, 6), torch.nn.Linear(6, 4, bias=False)
        self.up.weight = torch.nn.Parameter(self.down.weight.detach().T.contiguous())
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.conv(x))).flatten(2)
        y, _ = self.gru(self.lstm(y)[0])
        return torch.relu(self.up(self.down(y))) * self.scale + torch.nn.functional.linear(y, self.down.weight).sum()


class Adapted(torch.nn.Module):
    """A layer with a low-rank adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.base = torch.nn.Linear(8, 8)
        self.lora_a, self.lora_b = torch.nn.Linear(8, 2, bias=False), torch.nn.Linear(2, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.base(x) + self.lora_b(self.lora_a(x)))


def changed(model: torch.nn.Module, which: Callable[[str], bool] = lambda name: True) -> torch.nn.Module:
    """The same model with other weights, as after training."""
    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, tensor in (*other.named_parameters(), *other.named_buffers()):
            if tensor.is_floating_point() and which(name):
                tensor.mul_(torch.empty_like(tensor).uniform_(0.8, 1.2, generator=generator))
    return other


def lowered(model: torch.nn.Module, args: tuple[torch.Tensor, ...], backend: str, external: Any) -> Lowered:
    config = LoweringConfig(executorch=ExecutorchBackendConfig(external_constants=external))
    return delegraph.lower(model.eval(), args, backends=BACKENDS[backend], config=config)


def files(made: Lowered) -> dict[str, bytes]:
    return {name: serialize_flat_tensor(data) for name, data in made.program.tensor_data.items()}


def program_digest(made: Lowered) -> str:
    origin = origin_of(made.program.executorch_program)
    assert origin is not None
    return origin.program


def outputs(made: Lowered, data: Any, args: tuple[torch.Tensor, ...]) -> list[Array]:
    method = delegraph.load(bytes(made), data_path=data)["forward"].method
    return [np.asarray(x) for x in method.execute([x.numpy() for x in args])]


def assert_swapping_gives_the_other_model(model: torch.nn.Module, args: tuple[torch.Tensor, ...], backend: str) -> None:
    one, other = (lowered(m, args, backend, {"*": "weights"}) for m in (model, changed(model)))
    ptd, other_ptd = files(one)["weights"], files(other)["weights"]
    assert program_digest(one) == program_digest(other), "nothing of the weights is in the program"
    own, swapped, afresh = outputs(one, ptd, args), outputs(one, other_ptd, args), outputs(other, other_ptd, args)
    for a, b, c in zip(own, swapped, afresh, strict=True):
        np.testing.assert_array_equal(b, c)
        assert np.abs(a - b).max() > 1e-4
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(changed(model).eval()(*args))
    for output, expected in zip(swapped, (x for x in wanted if isinstance(x, torch.Tensor)), strict=True):
        np.testing.assert_allclose(output, expected.numpy(), rtol=2e-5, atol=2e-5 * expected.abs().max().item())


@pytest.mark.models
@pytest.mark.parametrize("backend", BACKENDS)
def test_whatever_would_be_folded_is_swapped(backend: str) -> None:
    torch.manual_seed(0)
    assert_swapping_gives_the_other_model(Folds(), (torch.randn(2, 3, 8, 8),), backend)


@pytest.mark.zoo
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_of_the_benchmarks_is_swapped(name: str, backend: str) -> None:
    model, args = make(name)
    assert_swapping_gives_the_other_model(model, args, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_methods_with_different_weights_of_one_name_are_refused(backend: str) -> None:
    """A `.ptd` has one entry for a name; the same weight in several methods is the same entry."""
    torch.manual_seed(0)
    model, args = Adapted().eval(), (torch.randn(3, 8),)
    config = LoweringConfig(executorch=ExecutorchBackendConfig(external_constants=True))

    def of(second: torch.nn.Module) -> Lowered:
        methods = {"one": model, "two": second.eval()}
        programs = {name: torch.export.export(method, args) for name, method in methods.items()}
        return delegraph.lower(programs, backends=BACKENDS[backend], config=config)

    made = of(copy.deepcopy(model))
    session = delegraph.load(bytes(made), data_path=list(files(made).values()), method="two")
    np.testing.assert_allclose(session(*args), model(*args).detach(), rtol=1e-5, atol=1e-5)
    with pytest.raises(LoweringError, match=r"base\.\w+'|two delegates disagree"):
        of(changed(model))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_buffer_that_no_checkpoint_has_stays_in_the_program(backend: str) -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)
            self.register_buffer("saved", torch.rand(8))
            self.register_buffer("made", torch.arange(8.0), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * self.made + self.saved

    torch.manual_seed(0)
    model, args = Scaled(), (torch.randn(3, 8),)
    made = lowered(model, args, backend, True)
    (data,) = made.program.tensor_data.values()
    assert set(data.named_data) == {"linear.weight", "linear.bias", "saved"}
    np.testing.assert_allclose(
        outputs(made, next(iter(files(made).values())), args)[0], model(*args).detach(), rtol=1e-5, atol=1e-5
    )


@pytest.fixture(scope="module", params=BACKENDS)
def adapted(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A model, its adapter trained on, and another model: the program with two files of each."""
    torch.manual_seed(0)
    model, args = Adapted(), (torch.randn(3, 8),)
    others = {"tuned": changed(model, lambda name: "lora" in name), "other": changed(model)}
    patterns = {"lora_*": "adapter", "*": "base"}
    made = {name: lowered(m, args, request.param, patterns) for name, m in {"model": model, **others}.items()}
    return {"args": args, **made}


def test_an_adapter_is_swapped_over_its_base(adapted: dict[str, Any]) -> None:
    base, adapter = files(adapted["model"])["base"], files(adapted["tuned"])["adapter"]
    got = outputs(adapted["model"], [base, adapter], adapted["args"])
    wanted = outputs(adapted["tuned"], list(files(adapted["tuned"]).values()), adapted["args"])
    np.testing.assert_array_equal(got[0], wanted[0])
    whole = FlatTensor({**deserialize_flat_tensor(base).named_data, **_entries(adapted["model"], "adapter")})
    np.testing.assert_array_equal(
        outputs(adapted["model"], [serialize_flat_tensor(whole), adapter], adapted["args"])[0], wanted[0]
    )


def _entries(made: Lowered, name: str) -> Any:
    return made.program.tensor_data[name].named_data


def test_an_adapter_of_another_base_is_refused(adapted: dict[str, Any]) -> None:
    base, adapter = files(adapted["model"])["base"], files(adapted["other"])["adapter"]
    with pytest.raises(InvalidExternalData, match=r"\.ptd number 2 was written beside another 'base\.\w+', 'base"):
        outputs(adapted["model"], [base, adapter], adapted["args"])


def test_weights_in_the_program_are_not_mixed_with_those_of_another(adapted: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, args = Adapted(), adapted["args"]
    one, other = (lowered(m, args, "portable", {"lora_*": "adapter"}) for m in (model, changed(model)))
    other.program.write_tensor_data_to_file(tmp_path)
    with pytest.raises(InvalidExternalData, match=r"adapter\.ptd was written with another program, and its 'lora_"):
        outputs(one, tmp_path / "adapter.ptd", args)
    tuned = lowered(changed(model, lambda name: "lora" in name), args, "portable", {"lora_*": "adapter"})
    assert outputs(one, files(tuned)["adapter"], args)[0].shape == (3, 8)


def test_programs_of_one_model_share_its_weights(adapted: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model, args = Adapted(), adapted["args"]
    on_kernels, on_cpu = (lowered(model, args, backend, {"*": "weights"}) for backend in ("portable", "cpu"))
    assert bytes(on_kernels) != bytes(on_cpu)
    np.testing.assert_allclose(
        outputs(on_kernels, files(on_cpu)["weights"], args)[0], outputs(on_cpu, files(on_kernels)["weights"], args)[0],
        rtol=1e-5,
    )  # fmt: skip


def test_a_weight_that_is_missing_and_one_of_another_shape(adapted: dict[str, Any]) -> None:
    made, args = adapted["model"], adapted["args"]
    base = files(made)["base"]
    with pytest.raises(InvalidExternalData, match=r"'(base|lora)[._]\w+(\.weight)?'"):
        outputs(made, base, args)
    with pytest.raises(InvalidExternalData, match=r"the data of '.*' is in a \.ptd file; pass it as data_path="):
        outputs(made, None, args)
    wide = torch.nn.Linear(8, 4, bias=False), torch.nn.Linear(4, 8, bias=False)
    model = Adapted()
    model.lora_a, model.lora_b = wide
    other = lowered(model, args, "portable", {"lora_*": "adapter", "*": "base"})
    with pytest.raises(InvalidExternalData, match=r"FLOAT\[4, 8\] in dim order \[0, 1\], but FLOAT\[2, 8\]"):
        outputs(made, [base, files(other)["adapter"]], args)


# ---- saving the pair -------------------------------------------------------------------------------


def test_a_reader_in_the_middle_of_a_save_never_meets_a_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The `.ptd` has its name, the `.pte` not yet: as a reader, or a machine without power, would find them."""
    torch.manual_seed(0)
    old, args = Adapted(), (torch.randn(3, 8),)
    trained, rewritten, both = changed(old), copy.deepcopy(old), changed(old)
    for model in (rewritten, both):
        model.forward = lambda x, m=model: torch.relu(m.base(x) + m.lora_b(m.lora_a(x)))  # type: ignore[method-assign]
    path, data = tmp_path / "m.pte", tmp_path / "weights.ptd"
    made = {m: lowered(m, args, "portable", {"*": "weights"}) for m in (old, trained, rewritten, both)}
    wanted = {m: outputs(one, files(one)["weights"], args)[0] for m, one in made.items()}
    seen: list[Any] = []
    replace = os.replace

    def looked_at(source: str, target: str) -> None:
        replace(source, target)
        if target == str(data):
            try:
                seen.append(delegraph.load(path, data_path=data)(args[0].numpy()))
            except InvalidExternalData as error:
                seen.append(str(error))

    made[old].save(path)
    monkeypatch.setattr(os, "replace", looked_at)
    for new in (trained, rewritten, both):
        made[new].save(path)
        np.testing.assert_array_equal(delegraph.load(path, data_path=data)(args[0].numpy()), wanted[new])
        made[old].save(path)
    np.testing.assert_array_equal(seen[0], wanted[trained])
    np.testing.assert_array_equal(seen[2], wanted[old])
    assert "was written with another program" in seen[4]
    assert sorted(os.listdir(tmp_path)) == ["m.pte", "weights.ptd"]


def test_saving_into_a_folder_that_is_not_there_writes_nothing(tmp_path: Path) -> None:
    made = lowered(Adapted(), (torch.randn(3, 8),), "portable", True)
    with pytest.raises(FileNotFoundError, match=rf"no such folder to save .* in; make it first: '{tmp_path}/no'"):
        made.save(tmp_path / "no" / "m.pte")
    assert os.listdir(tmp_path) == []


# ---- with ExecuTorch -------------------------------------------------------------------------------


@pytest.mark.executorch
def test_any_pair_of_files_gives_the_outputs_of_the_weights(executorch_python: str, tmp_path: Path) -> None:
    """Ours and theirs, of two models, each `.pte` with each `.ptd`, on both runtimes."""
    for name, model in models().items():
        made = lowered(model, (example(),), "portable", {"*": f"ours_{name}"})
        made.save(tmp_path / f"ours_{name}.pte")
    script = Path(__file__).parent / "interop" / "swap_weights.py"
    done = subprocess.run([executorch_python, script, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    there = torch.load(tmp_path / "results.pt")
    assert len(there) == 16
    for pair, theirs in there.items():
        program, data = (tmp_path / name for name in pair.split())
        with torch.no_grad():
            wanted = models()[data.stem.partition("_")[2]](example()).numpy()
        assert isinstance(theirs, torch.Tensor), f"{pair}: {theirs}"
        np.testing.assert_allclose(theirs.numpy(), wanted, rtol=1e-5, atol=1e-6, err_msg=f"{pair}, there")
        method = delegraph.Runtime.get().load_program(program, data_path=data).load_method("forward")
        (here,) = method.execute([example()])
        np.testing.assert_allclose(np.asarray(here), wanted, rtol=1e-5, atol=1e-6, err_msg=f"{pair}, here")
