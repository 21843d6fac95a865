"""One decode step of a whole model by our chain of kernels and by PyTorch, beside the floor: `make peers`, where that
Python has PyTorch; ours where it has CuPy too.

Llama-3-8B with random weights. A layer is compiled before and after its attention, so that PyTorch's backends of that
can be compared; the token is appended to the cache; all layers and the head are one CUDA graph. Its parts are compared
with float32 arithmetic on one layer before it is timed. A time is the median over replays, of the fastest of three
turns that all take one after another. A step reads more than any L2 keeps, so it is cold.
"""

import json
import math
import sys
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import peers

from roofline.core import statistics
from roofline.core.formatting import duration, listed, number, percent
from roofline.measure import lock
from roofline.models import decoding
from roofline.models.floor import Ceilings, NoCeiling, floor
from roofline.models.number_formats import NAMES

MODEL, DTYPE = "llama-3-8b", "bfloat16"
CELLS = ((1, 1024), (8, 1024), (32, 1024), (128, 1024), (1, 8192))  # batch, context with the new token
BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION")
EPS, THETA = 1e-5, 500000.0
TURNS, REPLAYS = 3, 30
TOLERANCE = 0.02  # norm of the difference over the norm, of logits after one layer; bf16 rounds each result by 0.2 %
RESULT = Path("results/model_pytorch.json")
OURS = "ours"


class Way(NamedTuple):
    """A graph that is replayed on a stream: its step, and how many tokens of each sequence it makes."""

    step: Callable[[int], object]
    applications: int


class Sizes(NamedTuple):
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    layers: int


class Layer(NamedTuple):
    """Matrices are of outputs x inputs; those that share their input are one."""

    norm: Any
    qkv: Any
    out: Any
    mlp_norm: Any
    gate_up: Any
    down: Any


class Weights(NamedTuple):
    embedding: Any
    layers: list[Layer]
    norm: Any
    head: Any


class Inputs(NamedTuple):
    """Of one step: the last token of each sequence, where it stands, and the rotation of that place."""

    tokens: Any
    position: Any
    cos: Any
    sin: Any


def sizes_of(config: dict) -> Sizes:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    of_heads = (heads, config["num_key_value_heads"], config.get("head_dim", hidden // heads))
    return Sizes(
        hidden, *of_heads, config["intermediate_size"], config["vocab_size"], layers=config["num_hidden_layers"]
    )


def weights_of(torch, sizes: Sizes, kind, device: str) -> Weights:
    """Drawn from N(0, 1 / hidden), those of norms about 1."""
    torch.manual_seed(0)

    def matrix(*shape: int):
        return torch.empty(shape, dtype=kind, device=device).normal_(0, sizes.hidden**-0.5)

    def norm():
        return torch.empty(sizes.hidden, dtype=kind, device=device).normal_(1, 0.1)

    attended = sizes.heads * sizes.head_size
    layers = [
        Layer(
            norm(),
            matrix(attended + 2 * sizes.kv_heads * sizes.head_size, sizes.hidden),
            matrix(sizes.hidden, attended),
            norm(),
            matrix(2 * sizes.intermediate, sizes.hidden),
            matrix(sizes.hidden, sizes.intermediate),
        )
        for _ in range(sizes.layers)
    ]
    return Weights(matrix(sizes.vocabulary, sizes.hidden), layers, norm(), matrix(sizes.vocabulary, sizes.hidden))


def caches_of(torch, sizes: Sizes, batch: int, context: int, kind, device: str) -> list[tuple]:
    """Keys and values of each layer, (batch, K/V heads, context, head size); the last place is the new token's."""
    shape = (batch, sizes.kv_heads, context, sizes.head_size)
    return [
        tuple(torch.empty(shape, dtype=kind, device=device).normal_() for _ in range(2)) for _ in range(sizes.layers)
    ]


def inputs_of(torch, sizes: Sizes, batch: int, context: int, kind, device: str) -> Inputs:
    tokens = torch.randint(sizes.vocabulary, (batch,), device=device)
    angles = (context - 1) * THETA ** (-torch.arange(0, sizes.head_size, 2, dtype=torch.float64) / sizes.head_size)
    cos, sin = (of.repeat(2).to(device, kind) for of in (angles.cos(), angles.sin()))
    return Inputs(tokens, torch.tensor([context - 1], device=device), cos, sin)


class Parts(NamedTuple):
    before: Callable
    after: Callable
    head: Callable


def parts_of(torch, sizes: Sizes, compiled: Callable[[Callable], Callable]) -> Parts:
    """A layer before its attention and after it, and what follows the layers; each made of functions of PyTorch."""
    functional = torch.nn.functional
    split = [sizes.heads * sizes.head_size, *[sizes.kv_heads * sizes.head_size] * 2]

    def rotated(x, cos, sin):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    def before(x, norm, qkv, cos, sin, position, keys, values):
        y = functional.rms_norm(x, (sizes.hidden,), norm, EPS)
        query, key, value = (
            part.view(x.shape[0], -1, 1, sizes.head_size) for part in functional.linear(y, qkv).split(split, -1)
        )
        keys[:, :, position] = rotated(key, cos, sin)
        values[:, :, position] = value
        return rotated(query, cos, sin)

    def after(x, attended, out, norm, gate_up, down):
        x = x + functional.linear(attended.reshape(x.shape[0], -1), out)
        gate, up = functional.linear(functional.rms_norm(x, (sizes.hidden,), norm, EPS), gate_up).chunk(2, -1)
        return x + functional.linear(functional.silu(gate) * up, down)

    def head(x, norm, weight):
        return functional.linear(functional.rms_norm(x, (sizes.hidden,), norm, EPS), weight)

    return Parts(*map(compiled, (before, after, head)))


def decoded(torch, sizes: Sizes, weights: Weights, caches: list[tuple], inputs: Inputs, parts: Parts):
    """Logits of the next token, (batch, vocabulary); the token's keys and values are in the caches then."""
    x = torch.nn.functional.embedding(inputs.tokens, weights.embedding)
    for layer, (keys, values) in zip(weights.layers, caches, strict=True):
        query = parts.before(x, layer.norm, layer.qkv, inputs.cos, inputs.sin, inputs.position, keys, values)
        attended = torch.nn.functional.scaled_dot_product_attention(
            query, keys, values, enable_gqa=sizes.heads > sizes.kv_heads
        )
        x = parts.after(x, attended, layer.out, layer.mlp_norm, layer.gate_up, layer.down)
    return parts.head(x, weights.norm, weights.head)


def expected(torch, sizes: Sizes, weights: Weights, caches: list[tuple], tokens):
    """The same logits in float32, written otherwise; the caches stay as they are."""
    batch, _, context, size = caches[0][0].shape
    rates = THETA ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    turn = torch.polar(torch.ones_like(rates), (context - 1) * rates).to(tokens.device, torch.complex64)

    def normed(x, norm):
        return x / (x.pow(2).mean(-1, keepdim=True) + EPS).sqrt() * norm.float()

    def rotated(x):
        pairs = torch.complex(x[..., : size // 2].contiguous(), x[..., size // 2 :].contiguous()) * turn
        return torch.cat((pairs.real, pairs.imag), -1)

    x = weights.embedding[tokens].float()
    for layer, (keys, values) in zip(weights.layers, caches, strict=True):
        mixed = (normed(x, layer.norm) @ layer.qkv.float().t()).view(batch, -1, size)
        query, key, value = mixed.split([sizes.heads, sizes.kv_heads, sizes.kv_heads], 1)
        keys, values = keys.float(), values.float() + 0  # copies, whatever the dtype
        keys = torch.cat((keys[:, :, :-1], rotated(key)[:, :, None]), 2)
        values[:, :, -1] = value
        query = rotated(query).view(batch, sizes.kv_heads, -1, size)
        weight = torch.softmax(query @ keys.transpose(2, 3) / math.sqrt(size), -1)
        x = x + (weight @ values).reshape(batch, -1) @ layer.out.float().t()
        gate, up = (normed(x, layer.mlp_norm) @ layer.gate_up.float().t()).chunk(2, -1)
        x = x + (gate / (1 + torch.exp(-gate)) * up) @ layer.down.float().t()
    return normed(x, weights.norm) @ weights.head.float().t()


def require_alike(torch, found, wanted) -> None:
    """Raises ArithmeticError where they differ by more than rounding."""
    apart = float((found.float() - wanted).norm() / wanted.norm())
    if not apart <= TOLERANCE:
        raise ArithmeticError(f"the results are {apart:.1e} apart")


def pytorch_steps(
    torch, sizes: Sizes, weights: Weights, batch: int, context: int, stream
) -> tuple[dict[str, Way], dict[str, str]]:
    """(steps by the backend of attention, each a graph that is replayed on a stream; why a backend has none)."""
    kind, found, missing = weights.head.dtype, {}, {}
    torch._dynamo.reset()  # its compiler gives up on a function after a few shapes
    options = {"coordinate_descent_tuning": True}
    parts = parts_of(torch, sizes, lambda part: torch.compile(part, dynamic=False, options=options))
    with torch.no_grad(), torch.cuda.stream(stream):
        caches = caches_of(torch, sizes, batch, context, kind, "cuda")
        inputs = inputs_of(torch, sizes, batch, context, kind, "cuda")
        shallow = weights._replace(layers=weights.layers[:1])
        wanted = expected(torch, sizes, shallow, caches[:1], inputs.tokens)
        for backend in BACKENDS:
            try:
                with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
                    # This compiles, too: a capture must not.
                    require_alike(torch, decoded(torch, sizes, shallow, caches[:1], inputs, parts), wanted)
                    stream.synchronize()
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, stream=stream):
                        logits = decoded(torch, sizes, weights, caches, inputs, parts)
                    graph.replay()
                    if not bool(logits.isfinite().all()):
                        raise ArithmeticError("its logits are not finite")
                found[backend] = Way(_replaying(torch, stream, graph, (caches, inputs, logits)), 1)
            except Exception as error:  # a compiler may raise anything
                missing[backend] = peers.first_line(error)
    return found, missing


def _replaying(torch, stream, graph, kept: tuple) -> Callable[[int], None]:
    """A step that replays a graph on a stream, and keeps what it reads and writes."""

    def replay(index: int) -> None:
        with torch.cuda.stream(stream):
            graph.replay()

    replay.kept = kept
    return replay


def seconds(torch, way: Way, stream) -> float:
    """The median of a token of each sequence, from event to event."""
    way.step(0)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
    events[0].record(stream)
    for index, event in enumerate(events[1:]):
        way.step(index)
        event.record(stream)
    stream.synchronize()
    times_ms = [start.elapsed_time(end) for start, end in pairwise(events)]
    return statistics.median(times_ms) / 1e3 / way.applications


def turns(torch, ways: dict[str, Way], stream) -> dict[str, float]:
    """Of each way the fastest of its turns."""
    times: dict[str, float] = {}
    for _ in range(TURNS):
        for name, way in ways.items():
            times[name] = min(seconds(torch, way, stream), times.get(name, math.inf))
    return times


def our_device(torch):
    """The first GPU, opened for our kernels; None, with the reason, where this Python or this card cannot run them."""
    missing = [package for module, package in peers.OURS.items() if find_spec(module) is None]
    if missing:
        return None, f"this Python lacks {listed(missing)}"
    try:
        return peers.our_device(torch), None
    except (LookupError, RuntimeError) as error:
        return None, peers.first_line(error)


def our_step(device, found: dict, batch: int, context: int) -> Way:
    """The chain's graph on the device's stream, its result checked. Raises RuntimeError where it cannot run."""
    from roofline.measure.operator_job import unsupported
    from roofline.operators.base import Case
    from roofline.operators.model_decode import ModelDecode
    from roofline.operators.model_decode.chain import Chain
    from roofline.operators.model_decode.dense import dense

    operator = ModelDecode()
    params = {"model": dense(found).as_dict(), "config": found}
    case = Case({"batch": batch, "context": context}, NAMES[DTYPE], found["name"], params)
    if why := unsupported(operator, Chain, device, case):
        raise RuntimeError(why)
    chain = Chain(operator, device, case, {}, operator.rotated_inputs(device, case, 1, 1))
    operator.check(chain, None)
    return Way(chain.step(None), 1)


def compare(torch, found: dict, model, sizes: Sizes, ceilings: Ceilings, cache) -> list[dict]:
    weights = weights_of(torch, sizes, getattr(torch, DTYPE), "cuda")
    device, why_not_ours = our_device(torch)
    stream = torch.cuda.ExternalStream(device.stream.ptr) if device else torch.cuda.Stream()
    rows = []
    stream.wait_stream(torch.cuda.current_stream())
    for batch, context in CELLS:
        operations = decoding.step(model, batch, context, cache)
        try:
            ways, why_not = pytorch_steps(torch, sizes, weights, batch, context, stream)
        except RuntimeError as error:  # out of memory
            ways, why_not = {}, {"all": peers.first_line(error)}
        try:
            if device:
                ways[OURS] = our_step(device, found, batch, context)
            else:
                why_not[OURS] = why_not_ours
        except (ArithmeticError, MemoryError, RuntimeError) as error:
            why_not[OURS] = peers.first_line(error)
        times = turns(torch, ways, stream)
        read = sum(one.times * one.bytes for one in operations)
        rows.append(row(batch, context, read, floor(operations, ceilings).seconds, times, why_not, ceilings))
        del ways
        torch.cuda.empty_cache()
        if device:
            device.xp.get_default_memory_pool().free_all_blocks()
    return rows


def row(batch, context, read: float, floor_s: float, times: dict, why_not: dict, ceilings: Ceilings) -> dict:
    ours = times.get(OURS)
    theirs = {name: seconds for name, seconds in times.items() if name != OURS}
    best = min(theirs.values(), default=None)

    def share(seconds: float | None) -> float | None:
        return read / seconds / 1e9 / ceilings.read_gb_per_s if seconds else None

    return {
        "batch": batch,
        "context": context,
        "bytes": read,
        "floor_s": floor_s,
        "ours_s": ours,
        "pytorch_s": theirs,
        "why_not": why_not,
        "our_share_of_read": share(ours),
        "share_of_read": share(best),
        "times_as_fast": best / ours if best and ours else None,
    }


def table(rows: list[dict]) -> str:
    lines = [
        "| batch | context | GB | floor | ours | of hbm_read | PyTorch | attention by | of hbm_read | times as fast |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    for one in rows:
        times, ratio = one["pytorch_s"], one["times_as_fast"]
        told = [str(one["batch"]), str(one["context"]), number(one["bytes"] / 1e9), duration(one["floor_s"])]
        told += [duration(one["ours_s"]), percent(one["our_share_of_read"])] if one["ours_s"] else ["-", "-"]
        if times:
            best = min(times, key=times.get)
            told += [duration(times[best]), best.lower().removesuffix("_attention"), percent(one["share_of_read"])]
        else:
            told += ["-"] * 3
        lines.append(f"| {' | '.join([*told, f'{ratio:.2f}' if ratio else '-'])} |")
    return "\n".join(lines)


def in_words(rows: list[dict], ceilings: Ceilings) -> str:
    """Over all cells that ran."""
    words = f"{MODEL}, {DTYPE}; bytes are weights without the embedding table, and K/V. hbm_read of the run: "
    words += f"{number(ceilings.read_gb_per_s)} GB/s."
    if ratios := [one["times_as_fast"] for one in rows if one["times_as_fast"]]:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        words += f" Ours is {mean:.2f} times as fast, geometric mean of {len(ratios)} cells"
        words += f" ({min(ratios):.2f} to {max(ratios):.2f})."
    reasons = dict.fromkeys(f"{name}: {why}" for one in rows for name, why in one["why_not"].items())
    return f"{words} Left out: {'; '.join(reasons)}." if reasons else words


def ceilings_of(roofline: dict) -> Ceilings:
    """Of the run's first GPU. Raises StopIteration where it has no read of its memory."""
    of_gpu = [one for one in roofline["ceilings"] if one["device"] == "gpu0"]
    read = next(one["gb_per_s"] for one in of_gpu if one["name"] == "hbm_read")
    return Ceilings(read, {one["dtype"]: one["tflops"] for one in of_gpu if one.get("method") == "gemm"})


def measured(torch) -> str | None:
    from roofline.models import config_file, number_formats  # needs what PyTorch's Python may lack

    try:
        ceilings = ceilings_of(json.loads(Path("results/roofline.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return "results/roofline.json is not there; run make first"
    except StopIteration:
        return "results/roofline.json has no hbm_read of gpu0"
    found = config_file.find(MODEL)
    model, sizes = config_file.read(found), sizes_of(found["config"])
    with lock.measuring([lock.HOST]):
        try:
            rows = compare(torch, found, model, sizes, ceilings, number_formats.PLAIN["bf16"])
        except (torch.cuda.OutOfMemoryError, NoCeiling) as error:
            return f"{MODEL} cannot be compared: {peers.first_line(error)}"
    by_peer = peers.counted(
        (["PyTorch"], {}) if one["pytorch_s"] else ([], {"PyTorch": "; ".join(one["why_not"].values())}) for one in rows
    )
    known = {"model": MODEL, "dtype": DTYPE, "read_gb_per_s": ceilings.read_gb_per_s, "by_peer": by_peer}
    peers.tell(RESULT, peers.provenance(torch) | known | {"rows": rows}, f"{in_words(rows, ceilings)}\n\n{table(rows)}")
    return None


def main() -> str | None:
    return peers.with_pytorch(measured)


if __name__ == "__main__":
    sys.exit(main())
