"""The tensors of each shipped model's checkpoint, written down from modeling code: what weighs how much by another
route than the code, to which it owes nothing."""

from collections.abc import Iterator
from math import ceil, prod

Tensor = tuple[str, tuple[int, ...], int]  # name, shape, bytes of an element


def decoder(layers, hidden, heads, shared, size, mlp, vocabulary, *, tied=False, qkv_bias=False, norms=False):
    """Llama's, Mistral's and Qwen's, in bf16."""
    yield "embed", (vocabulary, hidden), 2
    if not tied:
        yield "lm_head", (vocabulary, hidden), 2
    yield "norm", (hidden,), 2
    for layer in range(layers):
        yield f"{layer}.input_norm", (hidden,), 2
        yield f"{layer}.post_norm", (hidden,), 2
        for name, rows in (("q", heads * size), ("k", shared * size), ("v", shared * size)):
            yield f"{layer}.{name}", (rows, hidden), 2
            if qkv_bias:
                yield f"{layer}.{name}.bias", (rows,), 2
        yield f"{layer}.o", (hidden, heads * size), 2
        if norms:
            yield f"{layer}.q_norm", (size,), 2
            yield f"{layer}.k_norm", (size,), 2
        yield from mlp(layer, hidden)


def dense(size):
    def tensors(layer, hidden):
        yield f"{layer}.gate", (size, hidden), 2
        yield f"{layer}.up", (size, hidden), 2
        yield f"{layer}.down", (hidden, size), 2

    return tensors


def mixtral_experts(layer, hidden):
    yield f"{layer}.router", (8, hidden), 2
    yield f"{layer}.w1", (8, 14336, hidden), 2
    yield f"{layer}.w2", (8, hidden, 14336), 2
    yield f"{layer}.w3", (8, 14336, hidden), 2


def gpt_oss() -> Iterator[Tensor]:
    """The experts' numbers two to a byte in blocks of 16 bytes, each with a byte of scale."""
    hidden, heads, shared, size, experts = 2880, 64, 8, 64, 32
    yield "embed", (201088, hidden), 2
    yield "unembedding", (201088, hidden), 2
    yield "norm", (hidden,), 2
    for layer in range(24):
        yield f"{layer}.norms", (2, hidden), 2
        yield f"{layer}.qkv", ((heads + 2 * shared) * size, hidden), 2
        yield f"{layer}.qkv.bias", ((heads + 2 * shared) * size,), 2
        yield f"{layer}.out", (hidden, heads * size), 2
        yield f"{layer}.out.bias", (hidden,), 2
        yield f"{layer}.sinks", (heads,), 2
        yield f"{layer}.router", (experts, hidden), 2
        yield f"{layer}.router.bias", (experts,), 2
        for name, rows in (("gate_up", 2 * hidden), ("down", hidden)):
            yield f"{layer}.{name}_blocks", (experts, rows, hidden // 32, 16), 1
            yield f"{layer}.{name}_scales", (experts, rows, hidden // 32), 1
            yield f"{layer}.{name}_bias", (experts, rows), 2


def deepseek_v3() -> Iterator[Tensor]:
    """Without the layer that predicts a second token; FP8 with an fp32 scale for each block of 128 x 128."""

    def fp8(name, rows, columns, copies=1):
        yield name, (copies, rows, columns), 1
        yield f"{name}_scale_inv", (copies, ceil(rows / 128), ceil(columns / 128)), 4

    hidden, heads = 7168, 128
    yield "embed", (129280, hidden), 2
    yield "lm_head", (129280, hidden), 2
    yield "norm", (hidden,), 2
    for layer in range(61):
        yield f"{layer}.norms", (2, hidden), 2
        yield f"{layer}.q_a_norm", (1536,), 2
        yield f"{layer}.kv_a_norm", (512,), 2
        yield from fp8(f"{layer}.q_a", 1536, hidden)
        yield from fp8(f"{layer}.q_b", heads * 192, 1536)
        yield from fp8(f"{layer}.kv_a_with_mqa", 512 + 64, hidden)
        yield from fp8(f"{layer}.kv_b", heads * 256, 512)
        yield from fp8(f"{layer}.o", hidden, heads * 128)
        if layer < 3:
            sizes = [("mlp", 18432, 1)]
        else:
            yield f"{layer}.gate", (256, hidden), 2
            yield f"{layer}.e_score_correction_bias", (256,), 4
            sizes = [("experts", 2048, 256), ("shared", 2048, 1)]
        for name, size, copies in sizes:
            yield from fp8(f"{layer}.{name}.gate", size, hidden, copies)
            yield from fp8(f"{layer}.{name}.up", size, hidden, copies)
            yield from fp8(f"{layer}.{name}.down", hidden, size, copies)


def gpt2() -> Iterator[Tensor]:
    yield "wte", (50257, 768), 4
    yield "wpe", (1024, 768), 4
    yield "ln_f", (2, 768), 4
    for layer in range(12):
        yield f"{layer}.ln_1", (2, 768), 4
        yield f"{layer}.ln_2", (2, 768), 4
        for name, rows, columns in (
            ("c_attn", 768, 2304), ("attn.c_proj", 768, 768), ("c_fc", 768, 3072), ("mlp.c_proj", 3072, 768)
        ):  # fmt: skip
            yield f"{layer}.{name}", (rows, columns), 4
            yield f"{layer}.{name}.bias", (columns,), 4


TENSORS = {
    "llama-3.2-1b": list(decoder(16, 2048, 32, 8, 64, dense(8192), 128256, tied=True)),
    "llama-2-7b": list(decoder(32, 4096, 32, 32, 128, dense(11008), 32000)),
    "llama-3-8b": list(decoder(32, 4096, 32, 8, 128, dense(14336), 128256)),
    "llama-3.1-8b": list(decoder(32, 4096, 32, 8, 128, dense(14336), 128256)),
    "llama-3-70b": list(decoder(80, 8192, 64, 8, 128, dense(28672), 128256)),
    "qwen2.5-7b": list(decoder(28, 3584, 28, 4, 128, dense(18944), 152064, qkv_bias=True)),
    "qwen3-8b": list(decoder(36, 4096, 32, 8, 128, dense(12288), 151936, norms=True)),
    "mistral-nemo-12b": list(decoder(40, 5120, 32, 8, 128, dense(14336), 131072)),
    "mixtral-8x7b": list(decoder(32, 4096, 32, 8, 128, mixtral_experts, 32000)),
    "gpt-oss-20b": list(gpt_oss()),
    "deepseek-v3": list(deepseek_v3()),
    "gpt-2": list(gpt2()),
}
# As their authors or Hugging Face's index of the checkpoint print them.
PUBLISHED = {
    "llama-3.2-1b": 1_235_814_400,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "mistral-nemo-12b": 12_247_782_400,
    "mixtral-8x7b": 46_702_792_704,
    "gpt-oss-20b": 20_914_757_184,
    "deepseek-v3": 671_026_419_200,
    "gpt-2": 124_439_808,
}


def tensor_bytes(tensors: list[Tensor]) -> int:
    return sum(prod(shape) * each for _, shape, each in tensors)


def cache_shapes(name: str, context: int) -> list[tuple[int, ...]]:
    """Of what each layer keeps of one sequence."""
    of = {
        "llama-3.2-1b": (16, 8, 64),
        "llama-2-7b": (32, 32, 128),
        "llama-3-70b": (80, 8, 128),
        "qwen2.5-7b": (28, 4, 128),
        "qwen3-8b": (36, 8, 128),
        "mistral-nemo-12b": (40, 8, 128),
        "gpt-2": (12, 12, 64),
    }
    if name == "deepseek-v3":
        return [(context, 512 + 64)] * 61
    if name == "gpt-oss-20b":
        return [(2, min(context, 128), 8, 64), (2, context, 8, 64)] * 12
    layers, heads, size = of.get(name, (32, 8, 128))
    return [(2, context, heads, size)] * layers
