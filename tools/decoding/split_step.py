"""The decode step of a dense model on two GPUs of one host, as decode_step.py has it on one: an operator file, which
`make model CARDS=2 MEASURE=1` runs."""

from typing import ClassVar

import numpy
from architecture import Model
from chain import CACHE_TENSORS, Chain
from decode_step import CACHE_SEED_OFFSET, MOST_CACHED, MOST_COMPARED, DecodeStep, cache_format
from dense import DenseModel
from split import SplitModel
from split_chain import SPLIT_CARDS, SPLIT_CONSTANTS, CardChain, SplitChain, join_layer, join_shards, split_dense

import roofline.api as api
from reference import normalise, random_cache, random_weights, run_layer, select_layer, to_float64

CARD_SEED_OFFSET = 100_000  # above all seeds of a card
LAYER_LAUNCHES = 7  # of one layer: four products, attention, two exchanges
EMBEDDING_LAUNCHES = 2


class SplitStep(DecodeStep):
    """The decode step of dense models on two cards, each of which has half of every matrix and of every cache."""

    name, title = "split_step", "a model's decode step on two GPUs"
    counted = "weights and K/V of one card without the embedding table, once"
    cards, implementations = SPLIT_CARDS, (SplitChain,)
    constants: ClassVar = {"gpu": SPLIT_CONSTANTS}

    def _counted_model(self, case: api.Case) -> Model:
        return SplitModel(super()._counted_model(case), SPLIT_CARDS).shard

    def _free_bytes(self, device: api.Device) -> int:
        return min(device.identity.memory_free_bytes, device.peer.memory_free_bytes if device.peer else 0)

    # -- inputs and check

    def inputs(self, device: api.CudaDevice, case: api.Case, seed: int) -> dict:
        """Return the two `devices`, and by the number of each what it has: half of the model, and all of its norms."""
        model = split_dense(DenseModel(**case.params["model"]))
        devices, arrays = [device, device.open_peer()], []
        random = numpy.random.default_rng(seed)
        tokens = random.integers(0, SPLIT_CARDS * model.vocabulary, case.shape["batch"], numpy.int32)
        norms: dict[str, numpy.ndarray] = {}
        for number, card in enumerate(devices):
            with card.current():
                weights = random_weights(card, model, case.dtype, seed + number * CARD_SEED_OFFSET)
                weights |= {name: card.to_device(norm) for name, norm in norms.items()}
                norms = {name: card.to_host(array) for name, array in weights.items() if name.endswith("norm")}
                cache = random_cache(card, model, case, seed + number * CARD_SEED_OFFSET + CACHE_SEED_OFFSET)
                arrays.append({**weights, **cache, "tokens": card.to_device(tokens)})
                card.synchronize()
        return {"devices": devices, **dict(enumerate(arrays))}

    def _check_layers(self, chain: SplitChain) -> tuple[list[float], str]:
        """Check the first layer, and every layer and all logits if one card has room for the whole model, too."""
        errors, compared = super()._check_layers(chain)
        if whole := self._join_on_one_card(chain):
            errors += self._compare_layers(chain, whole)
            compared += "; every layer and all logits against one card's, from the same stream"
        return errors, compared

    def _check_first_layer(self, chain: SplitChain) -> float:
        """Run the embedding, the first layer and the gather, and return the layer's error. Raises ArithmeticError."""
        launches = chain.make_launches(CardChain.make_launches)
        chain.run([[*one[: EMBEDDING_LAUNCHES + LAYER_LAUNCHES], one[-1]] for one in launches])
        stride = -(-chain.batch * chain.context // MOST_CACHED)
        halves = []
        for card in chain.cards:
            arrays = select_layer(card.weights, 0)
            arrays |= {name: arrays[name][::stride] for name in CACHE_TENSORS if name in arrays}
            with card.device.current():
                halves.append(to_float64(card.device, arrays))
        first_card = chain.cards[0]
        tokens, vocabulary = chain.device.to_host(first_card.weights["tokens"])[::stride], first_card.model.vocabulary
        owners = [(chain.cards[token // vocabulary], token % vocabulary) for token in tokens.tolist()]
        stream = numpy.stack([_to_float64(card, card.weights["embedding"][row]) for card, row in owners])
        expected = run_layer(chain.model, join_layer(halves, chain.model), stream)
        result = _to_float64(first_card, first_card.stream)[::stride]
        return self._require_close(chain, "the first layer", result, expected)

    def compare(
        self, implementation: api.Implementation, scope: str | None, index: int, result: api.Array
    ) -> api.Check:
        """Compare the logits with float64, of a large head every n-th. Both cards must have the same, all finite."""
        chain = implementation
        chain.synchronize()
        logits = [_to_float64(card, card.all_logits) for card in chain.cards]
        streams = [_to_float64(card, card.stream) for card in chain.cards]
        if not all(numpy.array_equal(first, second) for first, second in (logits, streams)):
            raise ArithmeticError(f"{self.name}, {chain.case}: the two cards have different results")
        half = chain.cards[0].model
        stride = -(-half.vocabulary * half.hidden // MOST_COMPARED) | 1  # odd
        expected = []
        for card in chain.cards:
            normalised = normalise(streams[0], _to_float64(card, card.weights["last_norm"]), half.eps)
            expected.append(normalised @ _to_float64(card, card.weights["head"][::stride]).T)
        compared = [part[:, ::stride] for part in numpy.split(logits[0], SPLIT_CARDS, axis=1)]
        error = self._require_close(chain, "the head", numpy.hstack(compared), numpy.hstack(expected))
        tolerance = self.tolerance_of(chain.case)
        return api.Check(compared="the head, against float64", relative_error=error, tolerance=tolerance)

    def _join_on_one_card(self, chain: SplitChain) -> Chain | None:
        """Return the whole model's chain on the first card; None if it has no room for it."""
        device, case = chain.device, chain.case
        model = super()._counted_model(case)
        cache_bytes = case.shape["batch"] * model.cache_bytes(case.shape["context"], cache_format(case))
        if model.weight_bytes + cache_bytes + api.LIBRARY_WORKSPACE_BYTES > device.xp.cuda.runtime.memGetInfo()[0]:
            return None
        first, second = (card.weights for card in chain.cards)
        arrays = {}
        for name in first:  # as words, which every version of CuPy concatenates; copies are on the first card
            halves = [half[name].view(f"u{first[name].itemsize}").copy() for half in (first, second)]
            joined = join_shards(name.rpartition(".")[2], halves, chain.model)
            arrays[name] = device.xp.asarray(joined).view(first[name].dtype)
        return Chain.make_prepared(self, device, case, {}, [arrays])

    def _compare_layers(self, chain: SplitChain, whole: Chain) -> list[float]:
        """Return the errors of every layer, and of the logits, against those of the whole model's chain.

        Each layer of the two cards begins with the stream of the one card: bf16 rounds the streams apart otherwise.
        Raises ArithmeticError.
        """
        layers, per_layer = range(chain.model.layers), whole.kernels_per_layer
        norms = [*(f"{layer}.input_norm" for layer in layers), "last_norm"]
        launches = chain.make_launches(CardChain.make_launches)
        # Their numbers are above those of all other exchanges, and the gather's is the last.
        starts = chain.make_launches(lambda card: [card.make_all_reduce(card.weights[norm], True) for norm in norms])
        gathers = chain.make_launches(lambda card: [card.make_gather()])
        whole_launches, errors = whole.make_launches(), []
        whole_launches[0]()
        for layer in layers:
            chain.begin_stream(whole.stream, [one[layer] for one in starts])
            first = EMBEDDING_LAUNCHES + layer * LAYER_LAUNCHES
            chain.run([one[first : first + LAYER_LAUNCHES] for one in launches])
            for launch in whole_launches[1 + layer * per_layer : 1 + (layer + 1) * per_layer]:
                launch()
            result, expected = (_to_float64(card, card.stream) for card in (chain.cards[0], whole))
            errors.append(self._require_close(chain, f"layer {layer}", result, expected))
        chain.begin_stream(whole.stream, [one[-1] for one in starts])
        chain.run([[one[-2], *gather] for one, gather in zip(launches, gathers, strict=True)])
        whole_launches[-1]()
        result, expected = (_to_float64(whole, logits) for logits in (chain.logits, whole.logits))
        return [*errors, self._require_close(chain, "the logits", result, expected)]


def _to_float64(card: Chain, array: api.Array) -> numpy.ndarray:
    with card.device.current():
        return card.device.to_host(array).astype("float64")
