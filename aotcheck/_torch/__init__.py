"""Everything private to torch that the project touches, under names of our own.

The rest of the project imports private torch names from here alone, so that a torch release which renames one breaks
one package, with one clear error at import. Each name is used as a primitive; what it does was learned by running it.
"""

from __future__ import annotations

import torch

try:
    import torch.utils._pytree as pytree
    from torch._C._dynamo.guards import TensorGuards
    from torch._higher_order_ops.auto_functionalize import auto_functionalized, can_auto_functionalize
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.nested._internal.nested_tensor import NestedTensor
    from torch.utils._python_dispatch import TorchDispatchMode

    from aotcheck._torch.ambient import (
        AMBIENT,
        ambient_state,
        another_tracer_active,
        autograd_flags,
        determinism,
        dual_level,
        functorch_active,
        mode_depths,
        set_grad_enabled_raw,
    )
    from aotcheck._torch.backward import after_backward, autograd_node_running, backward_keeps_graph, will_run
    from aotcheck._torch.compilers import (
        DYNAMO,
        USED_BY_BACKENDS,
        dynamo_is_imported,
        inductor_compiler,
        inductor_decompositions,
        unwrap_dynamo,
    )
    from aotcheck._torch.custom_functions import (
        noting_who_asks,
        noting_who_writes,
        run_backward_again,
        skip_backward,
    )
    from aotcheck._torch.dispatch import (
        META,
        FunctionMode,
        as_before_dispatch,
        disabled_torch_dispatch,
        disabled_torch_function,
        dispatch_mode_depth,
        lacks_meta_kernel,
        make_subclass,
        meta_kernels,
        past_function_modes,
        without_modes,
        without_torch_function,
    )
    from aotcheck._torch.fakes import Fakes
    from aotcheck._torch.graphs import append_node, direct_graph_module, ready_forward, rename_placeholders, take_lists
    from aotcheck._torch.hooks import (
        asked_for_gradient_edge,
        gradient_of,
        has_hooks,
        has_hooks_of_any_kind,
        held_gradient,
        set_hooks,
    )
    from aotcheck._torch.identity import drop_accumulator, other_dtype_than, set_data, swap, use_count
    from aotcheck._torch.nodes import (
        autograd_sequence_number,
        bound_apply,
        error_of,
        grad_fn_of,
        gradient_dtype,
        gradient_shape,
        is_opaque,
        is_write_through_view,
        leafness,
        outputs_of,
        run_without_gradients,
        sequence_number,
        variable_of,
    )
    from aotcheck._torch.ops import (
        PRIM_DEVICE,
        HigherOrderOperator,
        OpOverload,
        generator_address,
        is_composite,
        op_name,
        overload_name,
        raw_op,
        run_composite,
        run_composite_in,
        run_composite_kernel,
        run_kernel,
        schema_of,
        transparent_kernels,
    )
    from aotcheck._torch.quick_ops import quick_op
    from aotcheck._torch.saved import (
        SavedTensor,
        has_saved_tensor_hooks,
        is_packed,
        saved_of,
        unpack_some,
        without_saved_tensor_hooks,
    )
    from aotcheck._torch.storages import content_of, set_geometry, storage_address, storage_key, storage_of
    from aotcheck._torch.trees import pytree_children, state_of
    from aotcheck._torch.versions import (
        as_if_written,
        at_another_version,
        count_write,
        counted_by,
        refuse_inference_write,
        set_version,
        version_groups,
        version_of,
    )
    from aotcheck._torch.views import (
        CreationMeta,
        base_of,
        conj_view,
        creation_meta,
        is_view,
        made_with_tensors,
        neg_view,
        requires_grad_by_itself,
        set_creation_meta,
        view_func_of,
    )
except (ImportError, AttributeError, KeyError) as error:  # pragma: no cover - depends on the installed torch
    raise ImportError(
        f"aotcheck needs torch >= 2.11; torch {torch.__version__} lacks a name it uses: {error}"
    ) from error

__all__ = [
    "AMBIENT",
    "DYNAMO",
    "META",
    "PRIM_DEVICE",
    "USED_BY_BACKENDS",
    "CreationMeta",
    "FakeTensor",
    "FakeTensorMode",
    "Fakes",
    "FunctionMode",
    "HigherOrderOperator",
    "NestedTensor",
    "OpOverload",
    "SavedTensor",
    "TensorGuards",
    "TorchDispatchMode",
    "after_backward",
    "ambient_state",
    "another_tracer_active",
    "append_node",
    "as_before_dispatch",
    "as_if_written",
    "asked_for_gradient_edge",
    "at_another_version",
    "auto_functionalized",
    "autograd_flags",
    "autograd_node_running",
    "autograd_sequence_number",
    "backward_keeps_graph",
    "base_of",
    "bound_apply",
    "can_auto_functionalize",
    "conj_view",
    "content_of",
    "count_write",
    "counted_by",
    "creation_meta",
    "determinism",
    "direct_graph_module",
    "disabled_torch_dispatch",
    "disabled_torch_function",
    "dispatch_mode_depth",
    "drop_accumulator",
    "dual_level",
    "dynamo_is_imported",
    "error_of",
    "functorch_active",
    "generator_address",
    "grad_fn_of",
    "gradient_dtype",
    "gradient_of",
    "gradient_shape",
    "has_hooks",
    "has_hooks_of_any_kind",
    "has_saved_tensor_hooks",
    "held_gradient",
    "inductor_compiler",
    "inductor_decompositions",
    "is_composite",
    "is_opaque",
    "is_packed",
    "is_view",
    "is_write_through_view",
    "lacks_meta_kernel",
    "leafness",
    "made_with_tensors",
    "make_subclass",
    "meta_kernels",
    "mode_depths",
    "neg_view",
    "noting_who_asks",
    "noting_who_writes",
    "op_name",
    "other_dtype_than",
    "outputs_of",
    "overload_name",
    "past_function_modes",
    "pytree",
    "pytree_children",
    "quick_op",
    "raw_op",
    "ready_forward",
    "refuse_inference_write",
    "rename_placeholders",
    "requires_grad_by_itself",
    "run_backward_again",
    "run_composite",
    "run_composite_in",
    "run_composite_kernel",
    "run_kernel",
    "run_without_gradients",
    "saved_of",
    "schema_of",
    "sequence_number",
    "set_creation_meta",
    "set_data",
    "set_geometry",
    "set_grad_enabled_raw",
    "set_hooks",
    "set_version",
    "skip_backward",
    "state_of",
    "storage_address",
    "storage_key",
    "storage_of",
    "swap",
    "take_lists",
    "transparent_kernels",
    "unpack_some",
    "unwrap_dynamo",
    "use_count",
    "variable_of",
    "version_groups",
    "version_of",
    "view_func_of",
    "will_run",
    "without_modes",
    "without_saved_tensor_hooks",
    "without_torch_function",
]
