"""Traces of PyTorch programs for `make place`, and their FLOPs by torch.utils.flop_counter.

`python benchmarks/peers/traces.py FOLDER` writes a NAME.json.gz of each, and flops.json: the seconds of a step without
the profiler, and FLOPs by operator. It needs PyTorch 2.5 or newer and a GPU.
"""

import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import timing
import torch
from torch.nn import functional
from torch.profiler import profile, schedule
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

HIDDEN, HEADS, KV_HEADS, HEAD_SIZE, INNER = 4096, 32, 8, 128, 14336  # of Llama-3-8B
ATTENTION, KEYS = HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE
WARM, TIMED, ACTIVE = 5, 10, 5  # steps
COPIES = 8  # of operands: several times an L2
ATTENTIONS = [getattr(torch.ops.aten, f"_scaled_dot_product_{of}_attention") for of in ("flash", "efficient", "cudnn")]
Step = Callable[[], object]


def normal(*sizes: int, dtype=torch.bfloat16) -> torch.Tensor:
    return (torch.randn(*sizes, device="cuda") * sizes[-1] ** -0.5).to(dtype)


def llama_layer(batch: int, tokens: int, context: int) -> Step:
    """A prefill if tokens and context are equal; otherwise one token after a cached context. No rotary embedding."""
    qkv, output = normal(ATTENTION + 2 * KEYS, HIDDEN), normal(HIDDEN, ATTENTION)
    gate_up, down, weight = normal(2 * INNER, HIDDEN), normal(HIDDEN, INNER), normal(HIDDEN)
    keys, values = (normal(batch, KV_HEADS, context, HEAD_SIZE) for _ in range(2))
    given = normal(batch, tokens, HIDDEN)

    def step() -> torch.Tensor:
        found = functional.linear(functional.rms_norm(given, (HIDDEN,), weight), qkv)
        parts = found.view(batch, tokens, -1, HEAD_SIZE).transpose(1, 2).split([HEADS, KV_HEADS, KV_HEADS], 1)
        query, keys[:, :, -tokens:], values[:, :, -tokens:] = parts
        attended = functional.scaled_dot_product_attention(
            query, keys, values, is_causal=tokens == context, enable_gqa=True
        )
        x = given + functional.linear(attended.transpose(1, 2).reshape(batch, tokens, ATTENTION), output)
        gate, up = functional.linear(functional.rms_norm(x, (HIDDEN,), weight), gate_up).chunk(2, 2)
        return x + functional.linear(functional.silu(gate) * up, down)

    return torch.no_grad()(step)


def training() -> Step:
    """Forward, backward and optimizer of a small transformer, bf16 by autocast."""
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, norm_first=True)
    model = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 4), torch.nn.Linear(1024, 8192)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    given, target = normal(8, 1024, 1024, dtype=torch.float32), torch.randint(8192, (8 * 1024,), device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = functional.cross_entropy(model(given).flatten(0, 1), target)
        loss.backward()
        optimizer.step()

    return step


class Block(torch.nn.Module):  # of a ResNet-18
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        first = torch.nn.Conv2d(inputs, outputs, 3, outputs // inputs, 1, bias=False)
        second = torch.nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        norms = [torch.nn.BatchNorm2d(outputs) for _ in range(2)]
        self.main = torch.nn.Sequential(first, norms[0], torch.nn.ReLU(), second, norms[1])
        self.short = torch.nn.Conv2d(inputs, outputs, 1, 2, bias=False) if outputs > inputs else torch.nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.main(x) + self.short(x))


def resnet() -> Step:
    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    blocks = [Block(*pair) for pair in pairwise(widths)]
    start = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False), torch.nn.MaxPool2d(3, 2, 1))
    model = torch.nn.Sequential(start, *blocks).cuda().bfloat16().eval().to(memory_format=torch.channels_last)
    image = normal(64, 3, 224, 224).to(memory_format=torch.channels_last)
    return torch.no_grad()(lambda: model(image))


def gemm() -> Step:
    pairs = [(normal(4096, 4096), normal(4096, 4096)) for _ in range(COPIES)]
    return lambda: [torch.mm(a, b) for a, b in pairs]


def attention() -> Step:  # decode: 8 heads of 64, a context of 1024
    sets = [(normal(256, 8, 1, 64), normal(256, 8, 1024, 64), normal(256, 8, 1024, 64)) for _ in range(2)]
    return lambda: [functional.scaled_dot_product_attention(*one) for one in sets]


def captured(step: Step) -> Step:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def attention_flops(query, key, value, *_, **__) -> int:
    """By the counter's formula, with grouped heads repeated: some versions refuse them."""
    return sdpa_flop_count(query, *((one[0], query[1], *one[2:]) for one in (key, value)))


def collect(path: Path, step: Step, eager: Step) -> dict:
    """The first step that is recorded runs eagerly: it gives kernels of a graph their shapes, and is left out."""
    counted = dict.fromkeys(ATTENTIONS, attention_flops)
    with FlopCounterMode(display=False, custom_mapping=counted) as counter:
        eager()
    seconds = timing.seconds_by_events(torch, lambda _: step(), WARM, TIMED)
    with profile(record_shapes=True, schedule=schedule(wait=0, warmup=1, active=ACTIVE, repeat=1)) as profiler:
        for number in range(1 + ACTIVE):
            profiler.add_metadata_json("step_s", str(seconds))
            (eager if number == 1 else step)()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    counts = counter.get_flop_counts().get("Global", {})
    return {"step_s": seconds, "flops": {str(one): count for one, count in counts.items()}}


def main(folder: str) -> None:
    found, modes = {}, {"eager": lambda step: step, "compiled": torch.compile, "graph": captured}
    programs = {f"llama_prefill_{mode}": ((1, 2048, 2048), change) for mode, change in modes.items()}
    programs |= {f"llama_decode_{mode}": ((8, 1, 1024), change) for mode, change in modes.items()}
    programs |= {made.__name__: ((), made) for made in (training, resnet, gemm, attention)}
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, (sizes, make) in programs.items():
        torch.manual_seed(0)
        eager = llama_layer(*sizes) if sizes else make()
        found[name] = collect(Path(folder, f"{name}.json.gz"), make(eager) if sizes else eager, eager)
        print(f"{name}: {found[name]['step_s'] * 1e3:.3f} ms")
        Path(folder, "flops.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
