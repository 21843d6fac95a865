"""Prefill of Llama-3-8B with random weights in bf16: PyTorch, each layer compiled, the head for the last token alone.

One layer is compared with float32 arithmetic before anything is timed. This script needs nothing but PyTorch. The bound
of the same prompt: make model MODEL=llama-3-8b CARD=results IN=512.
"""

import timing

HIDDEN, LAYERS, HEADS, KV_HEADS, SIZE, INNER, VOCABULARY = 4096, 32, 32, 8, 128, 14336, 128256
EPS, THETA = 1e-5, 5e5
PROMPTS = (512, 4096)  # tokens of one sequence
WARMUP, RUNS, TURNS = 3, 10, 3
TOLERANCE = 0.02  # norm of the difference over the norm; bf16 rounds each result by 0.2 %


def weights_of(torch) -> dict:
    """Drawn from N(0, 1 / hidden), outputs x inputs; norms about 1."""
    torch.manual_seed(0)

    def matrix(outputs: int, inputs: int):
        return torch.empty((outputs, inputs), dtype=torch.bfloat16, device="cuda").normal_(0, HIDDEN**-0.5)

    def norm():
        return torch.empty(HIDDEN, dtype=torch.bfloat16, device="cuda").normal_(1, 0.1)

    sides = [((HEADS + 2 * KV_HEADS) * SIZE, HIDDEN), (HIDDEN, HEADS * SIZE), (2 * INNER, HIDDEN), (HIDDEN, INNER)]
    layers = [(norm(), norm(), *(matrix(*each) for each in sides)) for _ in range(LAYERS)]
    return {"layers": layers, "norm": norm(), "head": matrix(VOCABULARY, HIDDEN)}


def layer(torch, x, cos, sin, norm, mlp_norm, qkv, out, gate_up, down):
    """Of tokens x hidden, in the dtype of the arguments; the keys and values would go to the cache."""
    functional, tokens = torch.nn.functional, x.shape[0]

    def rotated(part):
        first, second = part.chunk(2, -1)
        return part * cos + torch.cat((-second, first), -1) * sin

    y = functional.linear(functional.rms_norm(x, (HIDDEN,), norm, EPS), qkv).view(tokens, -1, SIZE).transpose(0, 1)
    query, key, value = y.split([HEADS, KV_HEADS, KV_HEADS])
    attended = functional.scaled_dot_product_attention(
        rotated(query)[None], rotated(key)[None], value[None], is_causal=True, enable_gqa=True
    )
    x = x + functional.linear(attended[0].transpose(0, 1).reshape(tokens, -1), out)
    gate, up = functional.linear(functional.rms_norm(x, (HIDDEN,), mlp_norm, EPS), gate_up).chunk(2, -1)
    return x + functional.linear(functional.silu(gate) * up, down)


def prefilled(torch, tokens: int, weights: dict) -> dict:
    """Seconds to the first token of a prompt."""
    angles = torch.outer(torch.arange(tokens), THETA ** (-torch.arange(0, SIZE, 2) / SIZE)).repeat(1, 2)
    cos, sin = (of.to("cuda", torch.bfloat16) for of in (angles.cos(), angles.sin()))
    x = torch.randn((tokens, HIDDEN), dtype=torch.bfloat16, device="cuda")
    torch._dynamo.reset()
    compiled = torch.compile(lambda *arguments: layer(torch, *arguments), dynamic=False)
    wide = [array.float() for array in (x, cos, sin, *weights["layers"][0])]
    timing.require_alike(compiled(x, cos, sin, *weights["layers"][0]), layer(torch, *wide), TOLERANCE)
    del wide

    def step(index: int) -> None:
        found = x
        for one in weights["layers"]:
            found = compiled(found, cos, sin, *one)
        last = torch.nn.functional.rms_norm(found[-1:], (HIDDEN,), weights["norm"], EPS)
        torch.nn.functional.linear(last, weights["head"])

    return {"tokens": tokens, "turns_s": [timing.seconds_by_events(torch, step, WARMUP, RUNS) for _ in range(TURNS)]}


def main() -> None:
    given = timing.parser(__doc__).parse_args()
    torch = timing.pytorch()
    results = timing.Results(torch, given.output)
    with torch.no_grad():
        weights = weights_of(torch)
        for tokens in PROMPTS[:1] if given.short else PROMPTS:
            results.add(prefilled(torch, tokens, weights))
            print(f"{tokens} tokens: {1e3 * min(results.rows[-1]['turns_s']):.2f} ms", flush=True)


if __name__ == "__main__":
    main()
