"""Kernels of serving engines that are given their results, such as `_C::rms_norm` of vLLM: every tensor once.

A tensor that is overwritten is read and written; of a cache only what is written counts.
"""

from formulas.base import Call, CallWork, count_bytes, formula

IN_PLACE = {"fused_add_rms_norm": 2, "fused_add_rmsnorm": 2, "gemma_fused_add_rmsnorm": 2}  # so many are overwritten
FLOPS = {"rms": 6, "silu": 4, "gelu": 4, "rope": 3, "rotary": 3, "softmax": 6}  # per element, by a word of the name


@formula(
    *(
        "*::rms_norm*",
        "*::rmsnorm",
        "*::gemma_rmsnorm",
        "*::fused_add_rms_norm*",
        "*::fused_add_rmsnorm",
        "*::gemma_fused_add_rmsnorm",
    ),
    *(
        "*::silu_and_mul*",
        "*::mul_and_silu",
        "*::gelu_and_mul",
        "*::gelu_tanh_and_mul",
        "*::fatrelu_and_mul",
        "*::swigluoai_and_mul",
    ),
    *(
        "*::gelu_new",
        "*::gelu_fast",
        "*::gelu_quick",
        "*::fused_qk_norm_rope",
        "*::merge_attn_states",
        "*::merge_state*",
    ),
    *(
        "*::static_scaled_*_quant",
        "*::dynamic_scaled_*_quant",
        "*::dynamic_per_token_scaled_*_quant",
        "*::scaled_fp4_quant",
    ),
    *(
        "*::per_token_group_quant*",
        "*::per_token_group_fp8_quant",
        "*::sgl_per_token_*",
        "*::sgl_per_tensor_*",
        "*::scaled_int8_quant",
    ),
    *(
        "*::topk_softmax",
        "*::topk_sigmoid",
        "*::moe_align_block_size",
        "*::moe_sum",
        "*::moe_sum_reduce",
        "*::shuffle_rows",
        "*::permute_cols",
    ),
    *("*::apply_shuffle_mul_sum", "*::prepare_moe_input", "*::moe_permute", "*::moe_unpermute", "*::downcast_fp8"),
)
def given_results_work(call: Call) -> CallWork:
    """Return the work of a kernel all of whose tensors are arguments."""
    tensors, name = call.tensors(), call.name.rpartition("::")[2]
    overwritten = tensors[: IN_PLACE.get(name, 0)]
    per_element = next((flops for word, flops in FLOPS.items() if word in call.name), 1)
    return CallWork(
        per_element * max(tensor.count for tensor in tensors), count_bytes(tensors), count_bytes(overwritten)
    )


@formula("*::rotary_embedding", "*::batched_rotary_embedding", "*::apply_rope_*")
def rotary_work(call: Call) -> CallWork:
    """Return the work of rotary embeddings: of the table at most a row for each position is read."""
    positions, *others = [tensor for tensor in call.tensors() if tensor.count]
    if len(positions.dims) > 1 and positions.item_bytes < 4:  # SGLang has them last
        *others, positions = call.tensors()
    rotated = [tensor for tensor in others if tensor.dims[0] == positions.count][:4]
    tables = [tensor for tensor in others if tensor not in rotated][:1]
    table_bytes = sum(min(table.bytes, positions.count * table.bytes // table.dims[0]) for table in tables)
    written = rotated if call.name.endswith("rotary_embedding") else rotated[len(rotated) // 2 :]
    read = rotated if call.name.endswith("rotary_embedding") else rotated[: len(rotated) // 2]
    flops = FLOPS["rotary"] * sum(tensor.count for tensor in written)
    return CallWork(flops, count_bytes(read) + positions.bytes + table_bytes, count_bytes(written))


@formula("*::reshape_and_cache*", "*::concat_and_cache_mla", "*::set_kv_buffer*")
def cache_work(call: Call) -> CallWork:
    """Return the work of storing keys and values of new tokens, the first two tensors, in a cache of its own type."""
    new, cache = call.tensors()[:2], call.tensors()[2]
    written_bytes = sum(tensor.count for tensor in new) * cache.item_bytes
    return CallWork(0, count_bytes(new), written_bytes)
