"""A model split over cards: what each holds, what they exchange, and the command."""

import json
from types import SimpleNamespace

import card_limits
import config_file
import decoding
import pytest
from bound import CardCeilings, CardLimits, bound_steps
from config_fields import BadModel
from families import build_model
from operations import step_operations
from split import START_S, CardLink, SplitModel
from test_bound import BF16, MODELS, REFERENCE, in_an_empty_folder, made

LINK = CardLink(400.0, "made up")
CARD = CardLimits("A card", "made up", 80 * 10**9, "hbm_read", CardCeilings(4000.0, {"bf16": 800.0}), link=LINK)
SIZES = ((1024, 2.3e-6, None), (4096, 9e-6, "blocks disagree"), (16384, 2.6e-6, None))
__all__ = ["in_an_empty_folder"]


@pytest.mark.parametrize("cards", [2, 4, 8])
@pytest.mark.parametrize("name", ["llama-3-70b", "mixtral-8x7b"])
def test_cards_hold_all_weights_and_caches_once_but_norms_and_routers(name, cards):
    model, shard = MODELS[name], SplitModel(MODELS[name], cards).shard
    vectors = [vector for layer in model.layers for vector in layer.vectors] + [*model.vectors]
    routers = [linear for layer in model.layers for linear in layer.linears if linear.name.endswith("mlp.gate")]
    everywhere = sum(matrix.bytes for matrix in (*vectors, *routers))
    assert cards * shard.weight_bytes == model.weight_bytes + (cards - 1) * everywhere
    assert cards * shard.cache_bytes(1000, BF16) == model.cache_bytes(1000, BF16)
    flops = [
        sum(one.count * one.flops for one in step_operations(part, 3, 100, BF16) if "gate" not in one.name)
        for part in (model, shard)
    ]
    assert cards * flops[1] == flops[0]


def test_a_card_has_at_least_one_head_of_keys_and_a_latent_as_a_whole():
    config = {**config_file.find_model("qwen2.5-7b")["config"], "num_attention_heads": 32, "head_dim": 112}
    config |= {"intermediate_size": 18944, "num_key_value_heads": 4}
    model = build_model("a model", "made up", config)
    caches = [SplitModel(model, cards).shard.cache_bytes(10, BF16) for cards in (1, 2, 4, 8)]
    assert [caches[0] // cache for cache in caches] == [1, 2, 4, 4]
    latent = MODELS["deepseek-v3"]
    assert SplitModel(latent, 8).shard.cache_bytes(10, BF16) == latent.cache_bytes(10, BF16)


@pytest.mark.parametrize(
    ("changes", "cards", "words"),
    [
        ({}, 3, "28 heads"),
        ({"num_attention_heads": 12, "num_key_value_heads": 6, "head_dim": 112}, 4, "6 K/V heads"),
        ({"intermediate_size": 18942}, 4, "18942 outputs"),
    ],
)
def test_what_cannot_be_split_is_named_with_its_sizes(changes, cards, words):
    config = {**config_file.find_model("qwen2.5-7b")["config"], **changes}
    with pytest.raises(BadModel, match=f"CARDS: {cards}; .*{words}"):
        bound_steps(build_model("a model", "made up", config), CARD, [1], [64], BF16, cards)


def test_a_block_of_a_scale_stays_on_one_card():
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    config = {**config_file.find_model("mixtral-8x7b")["config"], "intermediate_size": 768, "quantization_config": fp8}
    model = build_model("a model", "made up", config)
    assert SplitModel(model, 2).shard
    with pytest.raises(BadModel, match="768 outputs, not a multiple of 512"):
        _ = SplitModel(model, 4).shard


def test_a_step_waits_for_two_exchanges_a_layer_one_of_the_embedding_and_the_logits():
    model, batch, cards = MODELS["llama-3-8b"], 4, 2
    (alone,), (step,) = (bound_steps(model, CARD, [batch], [1024], BF16, count) for count in (1, cards))
    reduced, gathered = batch * 4096 * 2, batch * 128256 * 2
    expected = 65 * (START_S + reduced / 400e9) + START_S + gathered / cards / 400e9
    assert alone.exchange_s == 0 and step.exchange_s == pytest.approx(expected)
    assert step.bound.seconds == pytest.approx(step.bound.memory_s + expected)
    assert step.expected.seconds_by_part["exchange"] == step.exchange_s


@pytest.mark.parametrize(("cards", "sent"), [(2, 1), (4, 1.25), (8, 1.125)])
def test_an_exchange_is_estimated_by_the_fewest_bytes_that_a_card_sends(cards, sent):
    assert LINK.all_reduce_s(cards, 1 << 30) == pytest.approx(START_S + sent * (1 << 30) / 400e9)


@pytest.mark.parametrize(("size", "expected"), [(512, 3e-6), (1536, 4e-6), (2048, 5e-6), (8192, 20e-6)])
def test_a_measured_exchange_is_between_its_neighbours(size, expected):
    link = CardLink(400.0, "made up", {2: {1024: 3e-6, 2048: 5e-6}})
    assert link.all_reduce_s(2, size) == pytest.approx(expected)
    assert link.all_reduce_s(4, size) == pytest.approx(START_S + 1.25 * size / 400e9)


@pytest.mark.parametrize("card", [str(REFERENCE), "NVIDIA H100 80GB HBM3"])
@pytest.mark.parametrize("name", ["llama-3-70b", "mixtral-8x7b"])
def test_the_command_answers_for_each_number_of_cards(capsys, name, card):
    asked = ["--batch=1", "--context=1024", "--price=3", "--cards=1,2,4,8"]
    status, said = made(capsys, name, "--card", card, *asked)
    rows = json.loads((decoding.FOLDER / f"{name}.json").read_text())["steps"]
    assert status == 0 and [row["cards"] for row in rows] == [1, 2, 4, 8]
    assert (
        rows[0]["weight_bytes"] == rows[3]["weight_bytes"]
        and rows[3]["card_weight_bytes"] < 0.13 * rows[0]["weight_bytes"]
    )
    assert [row["exchange_s"] > 0 for row in rows] == [False, True, True, True]
    for row in rows:
        assert row["usd_per_million_tokens"] == pytest.approx(row["cards"] * 3 / 3600 / row["tokens_per_s"] * 1e6)
    fewest = next(row["cards"] for row in rows if row["fits"])
    assert f"{fewest} card" in said and "estimated" in said
    assert fewest == (1 if "h200" in card else {"llama-3-70b": 2, "mixtral-8x7b": 2}[name])


def test_a_request_waits_for_the_exchanges_of_all_its_steps(capsys):
    rates, firsts = [], []
    for cards in (1, 2):
        made(capsys, "llama-3-8b", "--card", str(REFERENCE), "--in=512", "--out=9", "--batch=1", f"--cards={cards}")
        (row,) = json.loads((decoding.FOLDER / "llama-3-8b.json").read_text())["steps"]
        rates.append(9 / row["output_tokens_per_s"]), firsts.append(row["first_token_s"])
    assert rates[1] == pytest.approx(rates[0] / 2 + firsts[1] - firsts[0] / 2 + 8 * row["exchange_s"], rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["llama-3-8b", "--cards=0"], ["CARDS: '0'"]),
        (["llama-3-8b", "--cards=two"], ["CARDS: 'two'"]),
        (["llama-3-8b", "--cards=2,16"], ["CARDS: 2,16", "1 to 8"]),
        (["llama-3-8b", "--card", str(REFERENCE), "--cards=3"], ["CARDS: 3", "32 heads"]),
        (["llama-3-8b", "--card=NVIDIA L4", "--cards=2"], ["CARDS", "NVIDIA L4", "NVLink"]),
        (["llama-3-8b", "--cards=2", "--train=4096"], ["CARDS: 2", "TRAIN"]),
        (["llama-3-8b", "--cards=2", "--draft=2", "--accept=2", "--draft-params=1e9"], ["CARDS: 2", "DRAFT"]),
        (["--cards=2"], ["MODEL"]),
    ],
)
def test_what_is_wrong_is_named_in_a_line(capsys, arguments, words):
    status, said = made(capsys, *arguments)
    assert status == 1 and len(said.splitlines()) == 1 and all(word in said for word in words)


def test_a_run_of_two_cards_has_the_times_of_their_exchanges():
    sizes = [SimpleNamespace(size_bytes=size, time_s=time_s, doubt=doubt) for size, time_s, doubt in SIZES]
    link = {"device": "gpu0", "kind": "memory", "both_ways": True, "peer": "gpu1", "gb_per_s": 780.0, "doubt": None}
    reduced = SimpleNamespace(device="gpu0", peer="gpu1", sizes=sizes)
    slow = SimpleNamespace(device="gpu2", peer="gpu0", sizes=[SimpleNamespace(size_bytes=1024, time_s=1, doubt=None)])
    roofline = SimpleNamespace(ceilings=[SimpleNamespace(**link)], all_reduces=[reduced, slow])
    found = card_limits._find_link(SimpleNamespace(roofline=roofline), "gpu0")
    assert found.gb_per_s == 390 and found.all_reduces == {2: {1024: 2.3e-6, 16384: 2.6e-6}}
    assert [found.origin_of(cards) for cards in (2, 4)] == ["measured", "estimated"]
