"""Settings and recipes in ExecuTorch's own classes are taken by our managers and sessions."""

from __future__ import annotations

import pytest
import torch

from delegraph import aot
from delegraph.errors import LoweringError
from delegraph_executorch.bridge.settings import own_backend_config, own_edge_config
from delegraph_executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower

from .models import mlp

pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]


def test_a_backend_config_of_the_wheel_keeps_what_it_says() -> None:
    from executorch import exir
    from executorch.exir.passes import MemoryPlanningPass

    planning = MemoryPlanningPass(alloc_graph_input=False)
    given = exir.ExecutorchBackendConfig(memory_planning_pass=planning, segment_alignment=256, emit_stacktrace=True)
    config = own_backend_config(given)
    assert isinstance(config, ExecutorchBackendConfig)
    assert (config.segment_alignment, config.emit_stacktrace) == (256, True)
    assert not config.memory_planning_pass.alloc_graph_input
    edge = own_edge_config(exir.EdgeCompileConfig(_skip_dim_order=True))
    assert edge is not None and edge._skip_dim_order and edge._check_ir_validity


def test_which_copies_to_devices_are_left_out() -> None:
    from executorch import exir
    from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig

    theirs = PropagateDeviceConfig(skip_h2d_for_method_inputs=True)
    own = aot.PropagateDeviceConfig(skip_h2d_for_method_inputs=True)
    for given, expected in ((theirs, own), ({"forward": theirs}, {"forward": own})):
        config = own_backend_config(exir.ExecutorchBackendConfig(propagate_device_config=given))
        assert config.propagate_device_config == expected
    model, args = mlp()
    to_edge_transform_and_lower(torch.export.export(model, args)).to_executorch(exir.ExecutorchBackendConfig())


def test_what_has_no_meaning_here_is_refused_in_either_class() -> None:
    from executorch import exir
    from executorch.exir.dynamic_shape import DynamicMemoryPlanningMode

    model, args = mlp()
    config = exir.ExecutorchBackendConfig(dynamic_memory_planning_mode=DynamicMemoryPlanningMode.SYMBOLIC)
    with pytest.raises(LoweringError, match="memory is planned for upper bounds"):
        to_edge_transform_and_lower(torch.export.export(model, args)).to_executorch(config)


@pytest.mark.parametrize("kind", ["FP32", "PT2E_INT8_STATIC_PER_CHANNEL"])
def test_a_recipe_of_xnnpack(kind: str) -> None:
    from executorch.backends.xnnpack.recipes import XNNPACKRecipeProvider, XNNPackRecipeType

    from delegraph_executorch.export import ExportRecipe, export, recipe_registry

    recipe_registry.register_backend_recipe_provider(XNNPACKRecipeProvider())
    recipe = ExportRecipe.get_recipe(XNNPackRecipeType[kind])
    assert isinstance(recipe, ExportRecipe)
    model, args = mlp()
    session = export(model, [args], recipe)
    assert [delegate.id for delegate in session.get_executorch_program().execution_plan[0].delegates] == [
        "XnnpackBackend"
    ]
    torch.testing.assert_close(session.run_method()[0], model(*args), rtol=0.1, atol=0.1)


def test_a_recipe_for_phones_is_made_of_those_of_its_backends() -> None:
    pytest.importorskip("coremltools")
    from delegraph_executorch.export import ExportRecipe
    from delegraph_executorch.export.target_recipes import get_ios_recipe

    recipe = get_ios_recipe("ios-arm64-coreml-fp32")
    assert isinstance(recipe, ExportRecipe) and recipe.lowering_recipe is not None
    assert [type(one).__name__ for one in recipe.lowering_recipe.partitioners or ()] == [
        "CoreMLPartitioner",
        "XnnpackPartitioner",
    ]
