"""Norms and softmax: every tensor read once, one like the first written. FLOPs as of row normalisation, 6 per element."""

from formulas.base import Call, Work, formula, mapped

EACH = {
    6: "native_layer_norm _fused_rms_norm native_batch_norm cudnn_batch_norm _batch_norm_with_update native_group_norm "
    "batch_norm_elemt _softmax _log_softmax _safe_softmax",
    12: "native_layer_norm_backward _fused_rms_norm_backward native_batch_norm_backward cudnn_batch_norm_backward "
    "batch_norm_backward native_group_norm_backward _softmax_backward_data _log_softmax_backward_data",
}
FLOPS = {name: flops for flops, names in EACH.items() for name in names.split()}


@formula(*FLOPS)
def norm(call: Call) -> Work:
    return mapped(call.tensors(), FLOPS[call.name], call.inputs[0])


@formula("_C::rms_norm")  # of vLLM: result, input, weight
def into_first(call: Call) -> Work:
    return mapped(call.tensors()[1:], 6, call.inputs[0])


@formula("_C::fused_add_rms_norm")  # of vLLM: input and residual, both overwritten; weight
def both(call: Call) -> Work:
    work = mapped(call.tensors(), 7, call.inputs[0])
    return Work(work.flops, work.read_bytes, 2 * work.write_bytes)
