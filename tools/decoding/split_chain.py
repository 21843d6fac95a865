"""The chain on two GPUs of one host: a graph of kernels on each, with an exchange wherever both have a part of a sum.

    embed, all-reduce, then in each layer: queries, keys and values; attention; output; all-reduce; gate and up; down;
    all-reduce; last the head and the gather of the logits

Each card has half of the heads, of the MLP and of the vocabulary. An exchange is a small kernel of its own: while it
waits for the other card, the product after it fetches its first weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cached_property, partial
from typing import Any

import numpy
from chain import CACHE_TENSORS, GPU_CONSTANTS, KERNELS, NONE, STORE_OUTPUTS, Chain, Launch, step_costs
from dense import DenseModel

from roofline.api import Array, Case, Constant, CostTerms, CudaDevice, CudaImplementation, Operator, UnsupportedError
from roofline.api import product_kernel as products

SPLIT_CARDS = 2
SPLIT_KERNELS = KERNELS / "split_step.cu"
REDUCE_THREADS, GATHER_THREADS, VECTOR = 128, 512, 8  # threads of a block; numbers of a vector
VECTOR_WITH_FLAGS = 16  # numbers of 16 bits in an inbox
EXCHANGES_PER_LAYER, SINGLE_EXCHANGES = 2, 2  # all-reduces; that of the embedding, and the gather
EXCHANGE_SOURCE = "measured: a step of Llama-3-8B on two H200s over that of half of it on one, 2026-11"
SPLIT_CONSTANTS = {
    **GPU_CONSTANTS,
    "exchange_s": Constant(0.98e-6, EXCHANGE_SOURCE, "an exchange between two cards, as far as no fetch hides it"),
}


class CardChain(Chain):
    """The chain of one card, which computes its `shard` of the model, next to a peer, which computes the rest."""

    def __init__(self, operator: Operator, device: CudaDevice, case: Case, shard: DenseModel, number: int):
        super().__init__(operator, device, replace(case, params=case.params | {"model": asdict(shard)}))
        self.number = number
        self.exchanges = 0  # those of the launches made so far

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        """Allocate what the chain needs on a card, and what the peer stores into."""
        super().prepare(shared, copies)
        model, device, xp = self.model, self.device, self.device.xp
        self.part = device.empty((max(products.FEWEST_OF_MANY, self.rows), model.hidden), self.case.dtype)
        inbox_numbers = self.batch * model.hidden // VECTOR * VECTOR_WITH_FLAGS
        self.inboxes = [xp.zeros(inbox_numbers, "uint16") for _ in range(2)]  # exchanges take turns
        self.all_logits = device.empty((self.batch, SPLIT_CARDS * model.vocabulary), self.case.dtype)
        self.epoch, self.arrived, self.missed = (xp.zeros(1, xp.uint32) for _ in range(3))
        self.flags = xp.zeros(device.multiprocessors, xp.uint32)

    def connect(self, peer: "CardChain") -> None:
        """Take what the peer has for this card to store into. It does not keep the peer, whose memory would not be
        freed before a search for cycles."""
        self.peer_inboxes, self.peer_logits, self.peer_flags = peer.inboxes, peer.all_logits, peer.flags

    def _make_start(self) -> list[Launch]:
        self.exchanges = 0
        return [self._make_embed(), self.make_all_reduce(self.weights["0.input_norm"], begins=True)]

    def _make_addition(self, inputs: Array, weights: Array, next_norm: Array) -> tuple[list[Launch], int]:
        """Return the product that leaves the card's part of a sum, and the exchange that adds both parts."""
        part, _ = self._make_product(NONE, inputs, weights, 0, y=self.part)
        return [part, self.make_all_reduce(next_norm)], self.embedded_parts

    def _make_end(self) -> list[Launch]:
        return [self.make_gather()]

    def _make_embed(self) -> Launch:
        vocabulary, inputs = self.model.vocabulary, (self.weights["tokens"], self.weights["embedding"])
        sizes = self.model.hidden, self.number * vocabulary, vocabulary
        return self._make_launch("embed_part", (self.batch,), GATHER_THREADS, (*inputs, self.part), sizes)

    def make_all_reduce(self, next_norm: Array, begins: bool = False) -> Launch:
        """Return the exchange that adds the parts of both cards to the stream, or `begins` a stream with their sum."""
        inbox = self.exchanges % 2
        self.exchanges += 1
        blocks = -(-self.model.hidden // VECTOR // REDUCE_THREADS)
        arrays = self.part, self.stream, next_norm, self.scaled, self.squares, self.inboxes[inbox]
        arrays = *arrays, self.peer_inboxes[inbox], self.epoch, self.missed
        sizes = self.model.hidden, self.exchanges, int(begins)
        return self._make_launch("all_reduce", (blocks, self.batch), REDUCE_THREADS, arrays, sizes)

    def make_gather(self) -> Launch:
        """Return the exchange that leaves all logits on both cards, and ends the epoch."""
        self.exchanges += 1
        outputs = self.model.vocabulary // VECTOR
        blocks = min(self.device.multiprocessors, -(-self.batch * outputs // GATHER_THREADS))
        arrays = self.logits, self.all_logits, self.peer_logits, self.flags, self.peer_flags
        arrays = *arrays, self.epoch, self.arrived, self.missed
        sizes = self.batch, outputs, SPLIT_CARDS * outputs, self.number * outputs, self.exchanges
        return self._make_launch("gather", (blocks,), GATHER_THREADS, arrays, sizes)

    def _make_launch(self, name: str, grid: tuple, threads: int, arrays: tuple, sizes: tuple) -> Launch:
        defines = (products.half_type_option(self.case.dtype), f"-DROWS={self.rows}")
        kernel = self.device.load_kernel(SPLIT_KERNELS, name, defines)
        launch = self.device.make_launcher(kernel, grid, (threads,), 0, overlap=True)
        return partial(launch, (*arrays, *map(numpy.int32, sizes)))


class SplitChain(CudaImplementation):
    """A decode step of a dense model as one CUDA graph on each of two CUDA devices of compute capability 9.0."""

    name, fused, graph = "split_chain", True, True
    sources = Chain.sources
    improvements, copies_wanted = Chain.improvements, Chain.copies_wanted

    @classmethod
    def unsupported(cls, device: CudaDevice, case: Case) -> str | None:
        sizes = case.params["model"]
        if device.peer is None:
            return "it takes a second GPU"
        try:
            device.open_peer()
        except UnsupportedError as reason:
            return str(reason)
        halved = "heads", "kv_heads", "inner", "vocabulary"
        if odd := [name for name in halved if sizes[name] % SPLIT_CARDS]:
            return ", ".join(f"{name} {sizes[name]} is odd" for name in odd)
        if sizes["vocabulary"] % (SPLIT_CARDS * STORE_OUTPUTS):
            return f"vocabulary {sizes['vocabulary']} is not a multiple of {SPLIT_CARDS * STORE_OUTPUTS}"
        return Chain.unsupported(
            device, replace(case, params=case.params | {"model": asdict(split_dense(DenseModel(**sizes)))})
        )

    def __init__(self, operator: Operator, device: CudaDevice, case: Case, count: int = 1):
        super().__init__(operator, device, case, count)
        self.model = DenseModel(**case.params["model"])
        self.batch, self.context = case.shape["batch"], case.shape["context"]
        self.rows = products.padded_rows(self.batch)

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        """Allocate the results of all kernels on both cards, and load their kernels and graphs."""
        super().prepare(shared, copies)
        self.cards, shard = [], split_dense(self.model)
        for number, device in enumerate(copies[0]["devices"]):
            with device.current():
                card = CardChain(self.operator, device, self.case, shard, number)
                card.prepare({}, [copies[0][number]])
                device.synchronize()
                self.cards.append(card)
        for card, peer in zip(self.cards, reversed(self.cards), strict=True):
            card.connect(peer)

    @property
    def logits(self) -> Array:
        """The logits [batch, vocabulary] of both cards, on the first."""
        return self.cards[0].all_logits

    def costs(self, scope: str | None) -> CostTerms:
        return split_costs(self.model, self.rows)

    # -- the step

    def make_launches(self, make: Callable[[CardChain], list[Launch]]) -> list[list[Launch]]:
        """Return the launches that `make` returns for each card. They are loaded before any of them runs."""
        launches = []
        for card in self.cards:
            with card.device.current():
                launches.append(make(card))
                card.device.synchronize()
        return launches

    def run(self, launches: list[list[Launch]]) -> None:
        """Run launches of both cards in turns, since they wait for each other, and synchronise."""
        for pair in zip(*launches, strict=True):
            for card, launch in zip(self.cards, pair, strict=True):
                with card.device.current():
                    launch()
        self.synchronize()

    def begin_stream(self, stream: Array, starts: list[Launch]) -> None:
        """Begin the streams of both cards with a stream of the first card, by an all-reduce of it and of zeros."""
        for card in self.cards:
            with card.device.current():
                card.part.data.memset_async(0, card.part.nbytes, card.device.stream)
        self.device.copy(stream, self.cards[0].part)
        self.run([[start] for start in starts])

    @cached_property
    def captured_graphs(self) -> list[Any]:
        """The graph of each card; both are loaded before either runs, since they wait for each other."""
        graphs = []
        for card, launches in zip(self.cards, self.make_launches(CardChain.make_launches), strict=True):
            with card.device.current():
                graphs.append(card.device.capture_graph(lambda launches=launches: [launch() for launch in launches]))
                card.device.synchronize()
        return graphs

    def step(self, scope: str | None) -> Callable[[int], Array]:
        pairs = list(zip(self.cards, self.captured_graphs, strict=True))

        def step(index: int) -> Array:
            for card, graph in pairs:
                with card.device.current():
                    graph.launch(card.device.stream)
            return self.logits

        return step

    def synchronize(self) -> None:
        """Wait until both cards have ended their steps. Raises RuntimeError if one has waited for the other in vain."""
        for card in self.cards:
            with card.device.current():
                card.device.synchronize()
        for card, peer in zip(self.cards, reversed(self.cards), strict=True):
            with card.device.current():
                if exchange := int(card.device.to_host(card.missed)[0]):
                    raise RuntimeError(
                        f"{card.device.name} waited a second for {peer.device.name} in vain (exchange {exchange})"
                    )


def split_dense(model: DenseModel) -> DenseModel:
    """Return the half of a model that one of two cards computes."""
    sizes = asdict(model)
    halves = {name: sizes[name] // SPLIT_CARDS for name in ("heads", "kv_heads", "inner", "vocabulary")}
    return replace(model, **halves)


def join_shards(name: str, shards: list[numpy.ndarray], model: DenseModel) -> numpy.ndarray:
    """Return an array of the whole model from those of both cards, by its name without that of its layer."""
    queries, keys = (count * model.head_size // SPLIT_CARDS for count in (model.heads, model.kv_heads))
    # Where the rows of one kind end on a card: of queries and keys, of gates. The rows of both cards come kind by kind.
    ends = {
        "qkv": [queries, queries + keys],
        "bias": [queries, queries + keys],
        "gate_up": [model.inner // SPLIT_CARDS],
    }
    if name in ("o", "down", *CACHE_TENSORS):
        return numpy.concatenate(shards, axis=1)
    if name in (*ends, "embedding", "head"):
        parts = [numpy.split(shard, ends.get(name, [])) for shard in shards]
        return numpy.concatenate([part for kind in zip(*parts, strict=True) for part in kind])
    return shards[0]


def join_layer(layers: list[Mapping[str, numpy.ndarray]], model: DenseModel) -> dict[str, numpy.ndarray]:
    """Return the arrays of a layer of the whole model from those of both cards."""
    return {name: join_shards(name, [layer[name] for layer in layers], model) for name in layers[0]}


def split_costs(model: DenseModel, rows: int) -> CostTerms:
    """Return the costs of a step of a model on two cards: those of its half, and of the exchanges."""
    costs = step_costs(split_dense(model), rows)
    exchanges = float(EXCHANGES_PER_LAYER * model.layers + SINGLE_EXCHANGES)
    calls = {name: SPLIT_CARDS * count for name, count in costs.calls.items()}
    return costs.model_copy(update={"calls": calls, "start": {**(costs.start or {}), "exchange_s": exchanges}})
