"""Parts of a step as programs of their own: a bound for the time that the step can reach.

What the part takes from the rest of the step becomes parameters, and what the rest takes from the
part becomes results, so that nothing else is fused into it.
"""

from __future__ import annotations

from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

from benchmarks import hlo_table


def is_forward_product(instruction: hlo_pb2.HloInstructionProto) -> bool:
    """Returns whether an instruction is a matrix product or a convolution of the forward pass."""
    return _is_product(instruction) and not _is_gradient(instruction)


def is_gradient_product(instruction: hlo_pb2.HloInstructionProto) -> bool:
    """Returns whether an instruction is a matrix product or a convolution of the backward pass."""
    return _is_product(instruction) and _is_gradient(instruction)


def is_update(instruction: hlo_pb2.HloInstructionProto) -> bool:
    """Returns whether an instruction is a part of an optimizer's update of a variable."""
    return instruction.metadata.op_type.startswith("ResourceApply")


def extract(path: str, is_part, part_path: str, first: int = 0, stride: int = 1) -> None:
    """Writes a part of the main computation of a step as a program.

    Args:
      path: of the step, an unoptimized HloModuleProto.
      is_part: function from an HloInstructionProto to bool.
      part_path: of the HloModuleProto to write.
      first: of these instructions.
      stride: every how many of them to take; all parameters and results have to fit in memory.
    """
    module = hlo_table.read(path)
    (main,) = (c for c in module.computations if c.id == module.entry_computation_id)
    everything = {instruction.id: instruction for instruction in main.instructions}
    chosen = [i for i, instruction in everything.items() if is_part(instruction)]
    part = {i: everything[i] for i in chosen[first::stride]}
    rest = [instruction for i, instruction in everything.items() if i not in part]
    inputs = {i for instruction in part.values() for i in instruction.operand_ids} - set(part)
    outputs = {i for instruction in rest for i in instruction.operand_ids} & set(part)

    shape = hlo_pb2.HloComputationProto(id=main.id).program_shape
    parameters = []
    for number, i in enumerate(sorted(inputs)):
        name = f"parameter.{i}"
        parameter = hlo_pb2.HloInstructionProto(
            id=i, name=name, opcode="parameter", parameter_number=number, shape=everything[i].shape
        )
        parameters.append(parameter)
        shape.parameters.append(parameter.shape)
        shape.parameter_names.append(name)
    shape.result.element_type = xla_data_pb2.TUPLE
    shape.result.tuple_shapes.extend(part[i].shape for i in sorted(outputs))
    root = hlo_pb2.HloInstructionProto(
        id=max(everything) + 1, name="results", opcode="tuple", shape=shape.result
    )
    root.operand_ids.extend(sorted(outputs))

    del main.instructions[:]
    main.instructions.extend([*parameters, *part.values(), root])
    main.program_shape.CopyFrom(shape)
    main.root_id = root.id
    module.host_program_shape.CopyFrom(shape)
    module.ClearField("input_output_alias")
    with open(part_path, "wb") as file:
        file.write(module.SerializeToString())


def _is_product(instruction):
    return instruction.opcode in ("dot", "convolution")


def _is_gradient(instruction):
    return instruction.metadata.op_name.startswith("gradients/")
