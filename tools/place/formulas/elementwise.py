"""Element-wise operators: inputs read once, as far as they differ; what they broadcast to written. 1 FLOP per element."""

from formulas.base import Call, Work, formula, mapped

# By how many tensors they read; further ones are results that the caller named.
READ = {
    0: "fill_ zero_ normal_ uniform_ bernoulli_ random_",
    1: "abs neg exp exp2 log log2 log1p sqrt rsqrt reciprocal sin cos tanh sigmoid relu gelu silu elu celu hardswish "
    "hardtanh leaky_relu softplus erf floor ceil round sign square isnan isinf logical_not bitwise_not clamp_min "
    "clamp_max clamp hardsigmoid mish log_sigmoid_forward triu tril cumsum flip roll",
    2: "add sub mul div remainder fmod pow maximum minimum atan2 eq ne lt le gt ge logical_and logical_or bitwise_and "
    "bitwise_or masked_fill threshold_backward gelu_backward silu_backward tanh_backward sigmoid_backward rsub "
    "threshold hardswish_backward elu_backward native_dropout_backward masked_scale leaky_relu_backward mse_loss "
    "bitwise_xor floor_divide",
    3: "where addcmul addcdiv lerp mse_loss_backward",
}
TO_BOOL = frozenset("eq ne lt le gt ge logical_and logical_or logical_not isnan isinf".split())
INPUTS = {name: count for count, names in READ.items() for name in names.split()}
IN_PLACE = {f"{name}_": count for name, count in INPUTS.items() if not name.endswith("_")}


@formula(*(INPUTS | IN_PLACE))
def elementwise(call: Call) -> Work:
    count = (INPUTS | IN_PLACE)[call.name]
    in_place = call.name.endswith("_")
    item = 1 if call.name in TO_BOOL else None
    return mapped(call.tensors()[:count], 1, call.inputs[0] if in_place else None, item)


@formula("native_dropout")
def dropout(call: Call) -> Work:
    """Writes a mask too."""
    work = mapped(call.tensors(), 1, call.inputs[0])
    return Work(work.flops, work.read_bytes, work.write_bytes + call.inputs[0].count)


@formula("_C::silu_and_mul")  # of vLLM: result, gate and up in one
def gated(call: Call) -> Work:
    return mapped(call.tensors()[1:], 2, call.inputs[0])
