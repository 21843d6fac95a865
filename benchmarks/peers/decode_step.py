"""One decode step of Llama-3-8B and of Qwen3-8B with random weights in bf16: our chain of kernels and PyTorch.

PyTorch compiles a layer before and after its attention, so that its backends of attention can be compared. The token is
appended to the cache. All layers and the head are one CUDA graph. One layer is compared with float32 arithmetic before
anything is timed. A step reads more than any L2 keeps, so it is cold.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path

import timing

from roofline.measure.operator_job import skip_reason

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "decoding"))  # whose decode_step is imported

import config_file
from chain import Chain
from decode_step import DecodeStep, make_case
from dense import DenseModel, read_dense

MODELS, DTYPE = ("llama-3-8b", "qwen3-8b"), "bf16"
CELLS = ((1, 1024), (4, 1024), (64, 1024), (1, 8192))  # batch, context with the new token
BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION")
WARMUP, REPLAYS = 1, 30
TOLERANCE = 0.02  # norm of the difference over the norm, of logits after one layer; bf16 rounds each result by 0.2 %


def weights_of(torch, model: DenseModel) -> tuple:
    """Of the embedding, the layers, the last norm and the head; drawn from N(0, 1 / hidden), those of norms about 1.

    Matrices are of outputs x inputs; those that share their input are one.
    """
    torch.manual_seed(0)

    def matrix(*shape: int):
        return torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(0, model.hidden**-0.5)

    def norm(size: int = model.hidden):
        return torch.empty(size, dtype=torch.bfloat16, device="cuda").normal_(1, 0.1)

    attended = model.heads * model.head_size
    layers = [
        (
            norm(),
            matrix(model.qkv, model.hidden),
            [norm(model.head_size) for _ in range(2 if model.norms else 0)],  # of queries and keys
            matrix(model.hidden, attended),
            norm(),
            matrix(2 * model.inner, model.hidden),
            matrix(model.hidden, model.inner),
        )
        for _ in range(model.layers)
    ]
    return matrix(model.vocabulary, model.hidden), layers, norm(), matrix(model.vocabulary, model.hidden)


def caches_of(torch, model: DenseModel, batch: int, context: int) -> list[tuple]:
    """Keys and values of each layer, (batch, K/V heads, context, head size); the last place is the new token's."""
    shape = (batch, model.kv_heads, context, model.head_size)
    return [
        tuple(torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_() for _ in range(2))
        for _ in range(model.layers)
    ]


def inputs_of(torch, model: DenseModel, batch: int, context: int) -> tuple:
    """The last token of each sequence, its place, and the rotation of that place: cosines and sines."""
    tokens = torch.randint(model.vocabulary, (batch,), device="cuda")
    angles = (context - 1) * model.theta ** (
        -torch.arange(0, model.head_size, 2, dtype=torch.float64) / model.head_size
    )
    cos, sin = (of.repeat(2).to("cuda", torch.bfloat16) for of in (angles.cos(), angles.sin()))
    return tokens, torch.tensor([context - 1], device="cuda"), cos, sin


def parts_of(torch, model: DenseModel) -> list[Callable]:
    """A layer before its attention and after it, and what follows the layers, each compiled."""
    functional = torch.nn.functional
    hidden, size, eps = model.hidden, model.head_size, model.eps
    split = [model.heads * size, *[model.kv_heads * size] * 2]

    def rotated(x, cos, sin):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    def before(x, norm, qkv, head_norms, cos, sin, position, keys, values):
        y = functional.rms_norm(x, (hidden,), norm, eps)
        query, key, value = (part.view(x.shape[0], -1, 1, size) for part in functional.linear(y, qkv).split(split, -1))
        if head_norms:
            query, key = (
                functional.rms_norm(part, (size,), weight, eps)
                for part, weight in zip((query, key), head_norms, strict=True)
            )
        keys[:, :, position] = rotated(key, cos, sin)
        values[:, :, position] = value
        return rotated(query, cos, sin)

    def after(x, attended, out, norm, gate_up, down):
        x = x + functional.linear(attended.reshape(x.shape[0], -1), out)
        gate, up = functional.linear(functional.rms_norm(x, (hidden,), norm, eps), gate_up).chunk(2, -1)
        return x + functional.linear(functional.silu(gate) * up, down)

    def head(x, norm, weight):
        return functional.linear(functional.rms_norm(x, (hidden,), norm, eps), weight)

    options = {"coordinate_descent_tuning": True}
    return [torch.compile(part, dynamic=False, options=options) for part in (before, after, head)]


def decoded(torch, model: DenseModel, weights: tuple, caches: list[tuple], inputs: tuple, parts: list[Callable]):
    """Logits of the next token, (batch, vocabulary); its keys and values are in the caches then."""
    (before, after, head), (tokens, position, cos, sin) = parts, inputs
    embedding, layers, last_norm, head_matrix = weights
    x = torch.nn.functional.embedding(tokens, embedding)
    for (norm, qkv, head_norms, out, mlp_norm, gate_up, down), (keys, values) in zip(layers, caches, strict=True):
        query = before(x, norm, qkv, head_norms, cos, sin, position, keys, values)
        attended = torch.nn.functional.scaled_dot_product_attention(
            query, keys, values, enable_gqa=model.heads > model.kv_heads
        )
        x = after(x, attended, out, mlp_norm, gate_up, down)
    return head(x, last_norm, head_matrix)


def expected(torch, model: DenseModel, weights: tuple, caches: list[tuple], tokens):
    """The same logits in float32, written otherwise; the caches stay as they are."""
    batch, _, context, size = caches[0][0].shape
    rates = model.theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    turn = torch.polar(torch.ones_like(rates), (context - 1) * rates).to(tokens.device, torch.complex64)

    def normed(x, norm):
        return x / (x.pow(2).mean(-1, keepdim=True) + model.eps).sqrt() * norm.float()

    def rotated(x):
        pairs = torch.complex(x[..., : size // 2].contiguous(), x[..., size // 2 :].contiguous()) * turn
        return torch.cat((pairs.real, pairs.imag), -1)

    embedding, layers, last_norm, head_matrix = weights
    x = embedding[tokens].float()
    for (norm, qkv, head_norms, out, mlp_norm, gate_up, down), (keys, values) in zip(layers, caches, strict=True):
        mixed = (normed(x, norm) @ qkv.float().t()).view(batch, -1, size)
        query, key, value = mixed.split([model.heads, model.kv_heads, model.kv_heads], 1)
        if head_norms:
            query, key = normed(query, head_norms[0]), normed(key, head_norms[1])
        keys, values = keys.float(), values.float() + 0  # copies, whatever the dtype
        keys = torch.cat((keys[:, :, :-1], rotated(key)[:, :, None]), 2)
        values[:, :, -1] = value
        query = rotated(query).view(batch, model.kv_heads, -1, size)
        weight = torch.softmax(query @ keys.transpose(2, 3) / math.sqrt(size), -1)
        x = x + (weight @ values).reshape(batch, -1) @ out.float().t()
        gate, up = (normed(x, mlp_norm) @ gate_up.float().t()).chunk(2, -1)
        x = x + (gate / (1 + torch.exp(-gate)) * up) @ down.float().t()
    return normed(x, last_norm) @ head_matrix.float().t()


def of_pytorch(torch, model: DenseModel, weights: tuple, batch: int, context: int, stream):
    """(PyTorch's steps by the backend of attention, each one graph on a stream; why a backend has none)."""
    found, missing = {}, {}
    torch._dynamo.reset()  # its compiler gives up on a function after a few shapes
    parts = parts_of(torch, model)
    with torch.no_grad(), torch.cuda.stream(stream):
        caches, inputs = caches_of(torch, model, batch, context), inputs_of(torch, model, batch, context)
        shallow = weights[0], weights[1][:1], *weights[2:]
        wanted = expected(torch, model, shallow, caches[:1], inputs[0])
        for backend in BACKENDS:
            name = f"PyTorch, {backend.lower()}"
            try:
                with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
                    # This compiles, too: a capture must not.
                    timing.require_alike(decoded(torch, model, shallow, caches[:1], inputs, parts), wanted, TOLERANCE)
                    stream.synchronize()
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, stream=stream):
                        logits = decoded(torch, model, weights, caches, inputs, parts)
                    graph.replay()
                    if not bool(logits.isfinite().all()):
                        raise ArithmeticError("its logits are not finite")
                found[name] = timing.Way(timing.replaying(torch, stream, graph, (caches, inputs, logits)), 1)
            except Exception as error:  # a compiler may raise anything
                missing[name] = timing.first_line(error)
    return found, missing


def ours(device, found: dict, batch: int, context: int) -> timing.Way:
    """The graph of the chain on the stream of the device, its result checked. Raises RuntimeError if it cannot run."""
    operator, case = DecodeStep(), make_case(found, batch, context)
    if why := skip_reason(operator, Chain, device, case):
        raise RuntimeError(why)
    chain = Chain.make_prepared(operator, device, case, {}, operator.rotated_inputs(device, case, 1, 1))
    operator.check(chain, None)
    return timing.Way(chain.step(None), 1, chain)


def compare(torch, device, found: dict, weights: tuple, batch: int, context: int) -> dict:
    stream = torch.cuda.ExternalStream(device.stream.ptr)
    stream.wait_stream(torch.cuda.current_stream())
    try:
        ways, why_not = of_pytorch(torch, read_dense(found), weights, batch, context, stream)
    except RuntimeError as error:  # out of memory
        ways, why_not = {}, {"PyTorch": timing.first_line(error)}
    try:
        ways["ours"] = ours(device, found, batch, context)
    except (ArithmeticError, MemoryError, RuntimeError) as error:
        why_not["ours"] = timing.first_line(error)
    times = timing.fastest_of_turns(
        ways, lambda way: timing.seconds_by_events(torch, way.step, WARMUP, REPLAYS, stream)
    )
    return {
        "model": found["name"],
        "batch": batch,
        "context": context,
        "ours_s": times.pop("ours", None),
        "peers_s": times,
        "why_not": why_not,
    }


def main() -> None:
    given = timing.parser(__doc__).parse_args()
    torch = timing.pytorch()
    device = timing.our_device(torch)
    results = timing.Results(torch, given.output, uuid=device.identity.uuid)
    for model in MODELS:
        found = config_file.find_model(model)
        weights = weights_of(torch, read_dense(found))
        for batch, context in CELLS[:1] if given.short else CELLS:
            results.add(compare(torch, device, found, weights, batch, context))
            torch.cuda.empty_cache()
            device.xp.get_default_memory_pool().free_all_blocks()
    results.close(("model", "batch", "context"), lambda row: row["model"])


if __name__ == "__main__":
    main()
