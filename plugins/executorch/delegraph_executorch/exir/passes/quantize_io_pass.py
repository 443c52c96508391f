"""Edge programs -> the same, taking quantized inputs and giving quantized outputs: the caller has the parameters.

`QuantizeInputs(manager, [0])` takes the first input's `quantize_per_tensor` out, so that the program takes int8; scale,
zero point, range and dtype are constant methods of the manager (`forward_input0_scale` …).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from delegraph.aot import EdgeProgramManager, ExportedProgramPassBase, ExportedProgramPassResult, exir_ops
from delegraph_executorch.exir.tensor import scalar_type_enum

__all__ = [
    "QuantizeInputs",
    "QuantizeOutputs",
    "extract_io_quant_params",
    "get_config_method_name",
    "quantize_input",
    "quantize_output",
]

QuantArgs: TypeAlias = Sequence[Any]
"""scale, zero point, smallest and largest value, dtype"""

_KEYS: Final = ("scale", "zp", "quant_min", "quant_max", "dtype")
_REQUANTIZED: Final = (torch.int8, torch.uint8, torch.bool, torch.int16, torch.uint16)

_quantized = exir_ops.edge.quantized_decomposed


def quantize_input(
    exported_program: ExportedProgram, input_index: int, qparams: Mapping[str, Any] | None = None
) -> QuantArgs:
    """Let the program take its user input `input_index` quantized, in place; how, is what is returned.

    As the program quantizes it itself, or by `qparams` ("scale", "zp", "dtype"), which requantizes it inside. Raises
    `ValueError` where the program does anything else with the input.
    """
    name = exported_program.graph_signature.user_inputs[input_index]
    (placeholder,) = [n for n in exported_program.graph.find_nodes(op="placeholder") if n.name == name]
    if len(placeholder.users) != 1:
        raise ValueError(f"Input {input_index} has more than one users")
    (quantize,) = placeholder.users
    if quantize.target != _quantized.quantize_per_tensor.default:
        raise ValueError(f"Input {input_index} is not used by a quantize op. It's used by {quantize.target}")
    own: QuantArgs = quantize.args[1:]
    wanted = own if qparams is None else _wanted(qparams)
    if _is_same(own, wanted):
        placeholder.meta["val"] = quantize.meta["val"]
        quantize.replace_all_uses_with(placeholder)
    else:
        _requantize(exported_program, placeholder, quantize, wanted)
    exported_program.graph.eliminate_dead_code()
    return wanted


def quantize_output(exported_program: ExportedProgram, output_index: int) -> QuantArgs:
    """Let the program give its output `output_index` quantized, in place; how, is what is returned.

    Raises `ValueError` where the program does not dequantize it last.
    """
    output = exported_program.graph.output_node()
    values: list[Any] = list(output.args[0])
    if output_index >= len(values):
        raise ValueError(f"{len(values)} outputs available, output index out of bounds: {output_index}")
    dequantize = values[output_index]
    assert isinstance(dequantize, Node)
    if dequantize.target != _quantized.dequantize_per_tensor.default:
        raise ValueError(f"Output {output_index} is not a dequantize op")
    values[output_index] = dequantize.args[0]
    output.args = (values,)
    quantized = values[output_index]
    exported_program.graph_signature.output_specs[output_index].arg.name = quantized.name
    exported_program.graph.eliminate_dead_code()
    return dequantize.args[1:]


def get_config_method_name(
    prefix: str | None = "forward", arg_type: str = "input", index: int = 0, key: str = "scale"
) -> str:
    """The constant method that gives a parameter: `forward_input0_scale`."""
    assert arg_type in ("input", "output"), "arg_type must be either input or output"
    assert index >= 0, "index must be non-negative"
    assert key in _KEYS, f"key must be one of {', '.join(_KEYS)}"
    return f"{'' if prefix is None else f'{prefix}_'}{arg_type}{index}_{key}"


class _QuantizesIO(ExportedProgramPassBase):
    arg_type = ""

    def __init__(
        self,
        edge_program_manager: EdgeProgramManager | None,
        method_name: str | None,
        exported_program: ExportedProgram | None,
    ) -> None:
        self.edge_program_manager = edge_program_manager
        self.param_prefix_name = method_name
        self.exported_program = exported_program
        self.quant_args: dict[int, QuantArgs] = {}

    def __call__(self, exported_program: Any) -> Any:
        """Run it on a program, or, as ExecuTorch's, on the graph module of the program that it was made with."""
        if not isinstance(exported_program, GraphModule):
            return super().__call__(exported_program)
        manager = self.edge_program_manager
        program = self.exported_program if manager is None else manager.exported_program()
        assert program is not None, "give an edge_program_manager or an exported_program"
        self.call(program)
        return PassResult(program.graph_module, True)

    def edge_manager_update_quant_config_method(self, idx: int, quant_args: QuantArgs) -> None:
        """Add the parameters of one input or output to the manager's constant methods."""
        if self.edge_program_manager is None:
            return
        names = [get_config_method_name(self.param_prefix_name, self.arg_type, idx, key) for key in _KEYS]
        values = [*quant_args[:-1], scalar_type_enum(quant_args[-1])]
        self.edge_program_manager.add_constant_methods(dict(zip(names, values, strict=True)))

    def edge_manager_update_quant_config_methods_all(self) -> None:
        """Add the parameters of all inputs or outputs."""
        for index, quant_args in self.quant_args.items():
            self.edge_manager_update_quant_config_method(index, quant_args)


class QuantizeInputs(_QuantizesIO):
    """Lets a method take inputs quantized. `quantized_inputs_idx` are their indices, or also by what parameters."""

    arg_type = "input"

    def __init__(
        self,
        edge_program_manager: EdgeProgramManager | None,
        quantized_inputs_idx: Mapping[int, Mapping[str, Any]] | Sequence[int],
        method_name: str | None = None,
        exported_program: ExportedProgram | None = None,
    ) -> None:
        super().__init__(edge_program_manager, method_name, exported_program)
        self.quantized_inputs_idx_dict: dict[int, Any] = (
            dict(quantized_inputs_idx)
            if isinstance(quantized_inputs_idx, Mapping)
            else dict.fromkeys(quantized_inputs_idx)
        )

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Change the program."""
        for index, qparams in self.quantized_inputs_idx_dict.items():
            self.quant_args[index] = quantize_input(exported_program, index, qparams)
        self.edge_manager_update_quant_config_methods_all()
        return ExportedProgramPassResult(exported_program, True)


class QuantizeOutputs(_QuantizesIO):
    """Lets a method give outputs quantized. `quantized_outputs_idx_list` are their indices."""

    arg_type = "output"

    def __init__(
        self,
        edge_program_manager: EdgeProgramManager | None,
        quantized_outputs_idx_list: Sequence[int],
        method_name: str | None = None,
        exported_program: ExportedProgram | None = None,
    ) -> None:
        super().__init__(edge_program_manager, method_name, exported_program)
        self.quantized_outputs_idx_list = quantized_outputs_idx_list

    @property
    def dequant_args(self) -> dict[int, QuantArgs]:
        """The parameters by output."""
        return self.quant_args

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Change the program."""
        for index in self.quantized_outputs_idx_list:
            self.quant_args[index] = quantize_output(exported_program, index)
        self.edge_manager_update_quant_config_methods_all()
        return ExportedProgramPassResult(exported_program, True)


def extract_io_quant_params(
    edge_prog: EdgeProgramManager, *, input_idxs: Sequence[int] = (0,), output_idxs: Sequence[int] = (0,)
) -> dict[str, dict[str, dict[str, Any]]]:
    """`{"inputs": {name: {"scale": …, "zero_point": …}}, "outputs": {…}}`; takes the q/dq calls out of the program."""
    inputs, outputs = QuantizeInputs(edge_prog, list(input_idxs)), QuantizeOutputs(edge_prog, list(output_idxs))
    program = edge_prog.exported_program()
    for one in (inputs, outputs):
        one(program.graph_module)
    placeholders = [node.name for node in program.graph.find_nodes(op="placeholder")]
    results = [value.name for value in program.graph.output_node().args[0]]
    return {
        "inputs": {placeholders[index]: _named(args) for index, args in inputs.quant_args.items()},
        "outputs": {results[index]: _named(args) for index, args in outputs.quant_args.items()},
    }


def _named(quant_args: QuantArgs) -> dict[str, Any]:
    keys = ("scale", "zero_point", "quant_min", "quant_max", "dtype")
    return {k: scalar_type_enum(v) if k == "dtype" else v for k, v in zip(keys, quant_args, strict=True)}


def _wanted(qparams: Mapping[str, Any]) -> QuantArgs:
    assert {"scale", "zp", "dtype"} <= qparams.keys(), "dtype/scale/zp must be specified in qparam"
    limits = torch.iinfo(qparams["dtype"])
    return qparams["scale"], qparams["zp"], limits.min, limits.max, qparams["dtype"]


def _is_same(own: QuantArgs, wanted: QuantArgs) -> bool:
    if own[4] != wanted[4]:
        if own[4] not in _REQUANTIZED or wanted[4] not in _REQUANTIZED:
            raise ValueError(
                f"Only limited data types are supported for requantization, but got {wanted[4]} -> {own[4]}"
            )
        return False
    return math.isclose(own[0], wanted[0], rel_tol=1e-5, abs_tol=1e-8) and own[1] == wanted[1]  # as numpy.isclose


def _requantize(program: ExportedProgram, placeholder: Node, quantize: Node, wanted: QuantArgs) -> None:
    """Dequantize what comes in before the program quantizes it in its own way."""
    with program.graph.inserting_before(quantize):
        dequantized = program.graph.call_function(_quantized.dequantize_per_tensor.default, (placeholder, *wanted))
    dequantized.meta = {**quantize.meta, "val": placeholder.meta["val"]}
    dequantized.meta["input_qparams"] = [
        dict(zip(("scale", "zero_point", "qmin", "qmax", "dtype"), wanted, strict=True))
    ]
    placeholder.meta["val"] = placeholder.meta["val"].to(wanted[4])
    quantize.replace_input_with(placeholder, dequantized)
