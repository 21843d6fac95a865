"""A decode step through one layer of Llama-3-8B by PyTorch in bf16, for Nsight Compute: batch 8, context 1024.

    ncu --profile-from-start off ... python tools/place/tests/reports/collect_pytorch_layer.py

It needs PyTorch 2.5 or newer and a GPU; README.md has the whole command. The layer runs once before the profiler looks.
"""

import torch
from torch.nn import functional

BATCH, CONTEXT, HIDDEN, HEADS, KV_HEADS, HEAD_SIZE, INNER = 8, 1024, 4096, 32, 8, 128, 14336
ATTENTION, KEYS = HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE

generator = torch.Generator("cuda").manual_seed(1)


def normal(*sizes: int) -> torch.Tensor:
    numbers = torch.randn(*sizes, device="cuda", dtype=torch.bfloat16, generator=generator)
    return numbers * sizes[-1] ** -0.5


qkv, output = normal(ATTENTION + 2 * KEYS, HIDDEN), normal(HIDDEN, ATTENTION)
gate_up, down = normal(2 * INNER, HIDDEN), normal(HIDDEN, INNER)
weight = torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16)
keys, values = (normal(BATCH, KV_HEADS, CONTEXT, HEAD_SIZE) for _ in range(2))


def layer(x: torch.Tensor) -> torch.Tensor:
    """[batch, hidden] to the same; the new token's key and value are the last of the context."""
    query, key, value = functional.linear(functional.rms_norm(x, (HIDDEN,), weight), qkv).split(
        [ATTENTION, KEYS, KEYS], 1
    )
    keys[:, :, -1], values[:, :, -1] = (one.view(BATCH, KV_HEADS, HEAD_SIZE) for one in (key, value))
    heads = functional.scaled_dot_product_attention(
        query.view(BATCH, HEADS, 1, HEAD_SIZE), keys, values, enable_gqa=True
    )
    x = x + functional.linear(heads.reshape(BATCH, -1), output)
    gate, up = functional.linear(functional.rms_norm(x, (HIDDEN,), weight), gate_up).chunk(2, 1)
    return x + functional.linear(functional.silu(gate) * up, down)


with torch.no_grad():
    x = normal(BATCH, HIDDEN)
    layer(x)
    with torch.cuda.profiler.profile():
        layer(x)
        torch.cuda.synchronize()
