"""Prompts, whole requests, dollars, speculation and training: counts by hand, published figures and tables."""

from dataclasses import replace
from types import SimpleNamespace

import bound
import card_limits
import config_file
import pytest
import questions
import speed_tables
from bound import CardCeilings, CardLimits
from config_file import BadModel
from families import build_model
from number_formats import PLAIN_FORMATS
from operations import prefill_operations, step_operations, verification_operations
from questions import GenerationRequest, Speculation
from workflow_run import CHECKOUT

import roofline.api as api

BF16 = PLAIN_FORMATS["bf16"]
CEILINGS = CardCeilings(4000.0, {"bf16": 800.0, "fp16": 800.0, "fp32": 50.0, "fp8_e4m3": 1500.0})
CARD = CardLimits("A card", "made up", 141 * 10**9, "hbm_read", CEILINGS, usd_per_hour=3.6)
H100, H200 = (str(CHECKOUT / "reference" / name) for name in ("nvidia-h100-80gb-hbm3", "nvidia-h200"))
A100 = "NVIDIA A100-SXM4-80GB"
NO_REQUEST, NO_DRAFTS = GenerationRequest(), Speculation()


def model(name, **changed):
    return build_model(name, "made up", config_file.SHIPPED_MODELS[name]["config"] | changed)


def total(step, what, part=None):
    return sum(one.count * getattr(one, what) for one in step if part in (None, one.part))


def test_a_prefill_of_llama_3_8b_is_counted_by_hand():
    hidden, inner, layers, heads, kv_heads, size, words, tokens = 4096, 14336, 32, 32, 8, 128, 128256, 4096
    matrices = layers * (2 * hidden * heads * size + 2 * hidden * kv_heads * size + 3 * hidden * inner)
    attention = layers * 4 * heads * size * tokens * (tokens + 1) // 2  # half of the square, with its diagonal
    step = prefill_operations(model("llama-3-8b"), tokens, 0, BF16)
    assert total(step, "flops") == 2 * matrices * tokens + attention + 2 * words * hidden
    written = layers * 2 * kv_heads * size * tokens
    norms, rows = (2 * layers + 1) * hidden, tokens * hidden
    assert total(step, "bytes") == 2 * (matrices + words * hidden + norms + rows + written)


@pytest.mark.parametrize("name", ["llama-3-8b", "gpt-oss-20b", "gpt-2"])
def test_a_prefill_of_one_token_after_a_prefix_is_a_decode_step(name):
    found = model(name)
    assert prefill_operations(found, 700, 699, BF16) == step_operations(found, 1, 700, BF16, expected=True)


def test_a_cached_prefix_and_a_window_leave_tokens_out():
    window, prompt, cached = 128, 1000, 300
    for one in (model("mistral-nemo-12b", sliding_window=window), model("mistral-nemo-12b", sliding_window=None)):
        step, back = prefill_operations(one, prompt, cached, BF16), one.layers[0].attention.window or prompt
        pairs = sum(min(place, back) for place in range(cached + 1, prompt + 1))
        assert total(step, "flops", "KV cache") == 40 * 4 * 32 * 128 * pairs
        moved = min(cached, back - 1) + min(prompt - cached, back)
        assert total(step, "bytes", "KV cache") == 40 * 2 * 2 * 8 * 128 * moved


def test_latent_attention_of_a_prompt_is_not_absorbed():
    step = prefill_operations(model("deepseek-v3"), 1000, 0, BF16)
    assert total(step, "flops", "KV cache") == 61 * 2 * 128 * (128 + 64 + 128) * 1000 * 1001 // 2


def test_a_prompt_reads_the_experts_that_its_tokens_are_expected_to_use():
    (up,) = (
        one for one in prefill_operations(model("mixtral-8x7b"), 5, 0, BF16) if one.name == "mlp.experts.0.up_proj"
    )
    assert up.flops == 5 * 2 * 2 * 4096 * 14336
    assert up.bytes == pytest.approx(8 * (1 - (6 / 8) ** 5) * 2 * 4096 * 14336)


@pytest.mark.parametrize("name", ["llama-3-8b", "gpt-oss-20b", "mixtral-8x7b", "deepseek-v3"])
def test_a_mix_is_the_sum_of_its_prompts_and_of_every_step(name):
    found, request = model(name), GenerationRequest(100, 20, 60)  # gpt-oss: over its window of 128
    (step,) = questions.add_answers(bound.bound_steps(found, CARD, [300], [159], BF16), request, NO_DRAFTS)
    seconds = 300 * bound.bound_step(prefill_operations(found, 100, 20, BF16), CEILINGS).seconds
    for context in range(101, 160):
        seconds += bound.bound_step(step_operations(found, 300, context, BF16, expected=True), CEILINGS).seconds
    assert step.output_tokens_per_s == pytest.approx(300 * 60 / seconds)
    assert step.usd_per_million_tokens == pytest.approx(3.6 / 3600 / step.output_tokens_per_s * 1e6)


# Milliseconds to the first token of Llama-2-7B at batch 1, of 128 and of 2048 tokens (README.md has the sources).
PUBLISHED = [(H200, "fp8", 5.7, 30.2), (H100, "fp8", 6.3, 30.8), (A100, "fp16", 16.2, 132.4), (A100, "fp16", 22, 139)]


@pytest.mark.parametrize(("card", "dtype", "short", "long"), PUBLISHED)
def test_no_published_time_to_first_token_is_below_the_bound(card, dtype, short, long):
    found = model("llama-2-7b", quantization_config={"quant_method": "fp8"} if dtype == "fp8" else None)
    for tokens, published_ms in ((128, short), (2048, long)):
        step = prefill_operations(found, tokens, 0, PLAIN_FORMATS[dtype])
        assert 0.2 < 1e3 * bound.bound_step(step, card_limits.load_card(card).burst).seconds / published_ms < 1


def test_the_price_of_a_run_is_that_of_its_machine_and_price_overrides_it(monkeypatch):
    run = api.open_run(H200)
    times = run.manifest.times.model_copy(update={"usd_per_hour": 4.0})
    monkeypatch.setattr(api, "open_run", lambda name: replace(run, manifest=SimpleNamespace(times=times)))
    both = [card_limits.load_card(H200), card_limits.load_datasheet_card(A100)]
    for given, each in (([], [4.0, None]), ([2.5], [2.5, 2.5]), ([2.5, 3.9], [2.5, 3.9])):
        assert [one.usd_per_hour for one in card_limits.set_prices(both, given)] == each


def test_the_cheapest_card_on_which_a_batch_fits_is_named_within_100_columns():
    found, cards = model("mixtral-8x7b"), [replace(CARD, name="NVIDIA A"), replace(CARD, name="NVIDIA B")]
    cards = [cards[0], replace(cards[1], memory_bytes=200 * 10**9, usd_per_hour=3.7)]
    table = speed_tables.build_comparison_table(
        [bound.bound_steps(found, one, [8, 512], [1024], BF16) for one in cards]
    )
    assert [row[-1] for row in table.rows] == ["A", "B"]
    one = speed_tables.build_card_table(bound.bound_steps(found, CARD, [8, 512], [8192], BF16), {})
    assert max(len(line) for of in (table, one) for line in speed_tables.format_narrow(of).splitlines()) <= 100


def test_a_verification_of_one_position_is_a_step_and_further_ones_read_no_weight_twice():
    found = model("llama-3-8b")
    step, four = (verification_operations(found, 8, positions, 1000, BF16) for positions in (1, 4))
    assert step == step_operations(found, 8, 1000, BF16, expected=True)
    rows, keys = 2 * 4096, 32 * 2 * 2 * 8 * 128  # bytes of a token's embedding, and of its keys and values
    assert total(four, "bytes") - total(step, "bytes") == 8 * 3 * (rows + keys)
    pairs = 4 * 1000 + 1 + 2 + 3
    assert total(four, "flops", "KV cache") == 8 * 32 * 4 * 32 * 128 * pairs
    for part in ("MLP", "attention", "head"):
        assert total(four, "flops", part) == 4 * total(step, "flops", part)


def test_further_positions_read_further_experts():
    four = verification_operations(model("mixtral-8x7b"), 1, 4, 10, BF16)
    (up,) = (one for one in four if one.name == "mlp.experts.0.up_proj")
    assert up.bytes == pytest.approx(8 * (1 - (6 / 8) ** 4) * 2 * 4096 * 14336)


def test_speculation_costs_its_drafts_and_a_verification_until_it_loses():
    found, speculation = model("llama-3-8b"), Speculation(3, 2.5, 1e9)
    steps = bound.bound_steps(found, CARD, [1, 8], [64], BF16)
    one, eight = questions.add_answers(steps, NO_REQUEST, speculation)
    verification = bound.bound_step(verification_operations(found, 8, 4, 64, BF16), CEILINGS).seconds
    assert eight.speculative_tokens_per_s == pytest.approx(8 * 2.5 / (3 * 2e9 / 4e12 + verification))
    assert one.speculation_loses_from == eight.speculation_loses_from > 8
    around = [one.speculation_loses_from - 1, one.speculation_loses_from]
    before, after = questions.add_answers(bound.bound_steps(found, CARD, around, [64], BF16), NO_REQUEST, speculation)
    assert before.speculative_tokens_per_s >= before.tokens_per_s
    assert after.speculative_tokens_per_s < after.tokens_per_s
    (never,) = questions.add_answers(steps[:1], NO_REQUEST, Speculation(3, 1, 1e9))
    assert (never.speculation_gains_from, never.speculation_loses_from) == (None, 1)
    (few_fit,) = bound.bound_steps(found, replace(CARD, memory_bytes=17 * 10**9), [1], [64], BF16)
    (few_fit,) = questions.add_answers([few_fit], NO_REQUEST, speculation)
    assert few_fit.largest_batch < one.speculation_loses_from and few_fit.speculation_loses_from is None
    drafts = questions.draft_operations(eight, speculation, 8)
    assert total(drafts, "flops") == 8 * 2 * 1e9


def test_where_few_sequences_of_a_mixture_lose_the_batch_from_which_they_gain_is_found():
    found, speculation = model("mixtral-8x7b"), Speculation(3, 1.9, 1e9)
    card = replace(CARD, memory_bytes=None)
    (one,) = questions.add_answers(bound.bound_steps(found, card, [1], [64], BF16), NO_REQUEST, speculation)
    gains, loses = one.speculation_gains_from, one.speculation_loses_from
    around = bound.bound_steps(found, card, [gains - 1, gains, loses - 1, loses], [64], BF16)
    around = questions.add_answers(around, NO_REQUEST, speculation)
    assert [step.speculative_tokens_per_s >= step.tokens_per_s for step in around] == [False, True, True, False]
    said = questions.describe_speculation([one], speculation)
    assert f"batch {gains} to {loses - 1}" in said and "at most" not in said
    gain = speed_tables.build_card_table(around, {}).columns.index("gain")
    cell = float(speed_tables.build_card_table(around, {}).rows[1][gain])
    assert cell == pytest.approx(around[1].speculative_tokens_per_s / around[1].tokens_per_s, rel=0.01)


def test_the_layer_for_multi_token_prediction_is_a_last_layer_behind_a_joint_matrix():
    found, speculation = model("deepseek-v3"), Speculation(1, 1.8)
    wrong = {"num_nextn_predict_layers": "1"}
    for config, word in (({}, "PARAMS"), ({"num_nextn_predict_layers": 0}, "PARAMS"), (wrong, "num_nextn.*'1'")):
        with pytest.raises(BadModel, match=word):
            questions.require_draft(found, config, speculation)
    questions.require_draft(found, {"text_config": {"mtp_num_hidden_layers": 1}}, speculation)
    questions.require_draft(found, {"num_nextn_predict_layers": 1}, speculation)
    (step,) = bound.bound_steps(found, CARD, [2], [1000], BF16)
    draft = questions.draft_operations(step, speculation, 2)
    attention = 7168 * (1536 + 576 + 128 * 128) + 1536 * 128 * 192 + 512 * 128 * 256
    weights = attention + 9 * 3 * 7168 * 2048 + 256 * 7168 + 2 * 7168 * 7168 + 129280 * 7168
    assert total(draft, "flops") - total(draft, "flops", "KV cache") == 2 * 2 * weights
    distinct = 256 * (1 - (1 - 8 / 256) ** 2)  # experts that two sequences use
    experts = (distinct + 1) * 3 * 7168 * 2048 * (1 + 4 / 128**2)  # in FP8 with its scales, one of them shared
    assert total(draft, "bytes", "experts") == pytest.approx(experts + (2 * 7168 + 4) * 256)  # and their router


# Gains of EAGLE and EAGLE-3 over Llama-3.1-8B, of DeepSeek-V3's MTP on 16 H200 (README.md has the sources).
EAGLE = [(2, 2.1, 1.62), (3, 2.29, 1.65), (4, 2.39, 1.58), (7, 2.47, 1.36)]
EAGLE_3 = [(4, 3.08, 1.75), (7, 3.54, 1.65)]
MTP = [(2, 2.18, 81.5 / 51), (3, 2.44, 82 / 51)]


@pytest.mark.parametrize(
    ("name", "batch", "context", "parameters", "published", "lowest", "highest"),
    [
        ("llama-3.1-8b", 1, 1024, 777e6, EAGLE, 1, 1.08),
        ("llama-3.1-8b", 1, 1024, 425e6, EAGLE_3, 1.4, 1.55),
        ("deepseek-v3", 32, 67584, None, MTP, 0.97, 1.04),
    ],
)
def test_gains_are_as_far_from_published_ones_as_the_page_says(
    name, batch, context, parameters, published, lowest, highest
):
    steps = bound.bound_steps(model(name), card_limits.load_card(H200), [batch], [context], BF16)
    for drafts, accepted, gain in published:
        (step,) = questions.add_answers(steps, NO_REQUEST, Speculation(drafts, accepted, parameters))
        assert lowest <= step.speculative_tokens_per_s / step.tokens_per_s / gain <= highest


def test_flops_of_training_are_counted_by_hand():
    tokens, weights = 4096, 8_030_261_248
    card = replace(CARD, sustained=CardCeilings(4000.0, {"bf16": 600.0}))
    rates = questions.rate_training(model("llama-3-8b"), card, tokens, None)
    full = 12 * 32 * 32 * 128 * tokens
    causal = full * (tokens + 1) / tokens / 2
    assert [row["flops_per_token"] for row in rates] == [6 * weights, 6 * weights + full, 6 * weights + causal]
    products = weights - 128256 * 4096 - 65 * 4096  # but the embedding table and the norms
    assert rates[0]["most_tokens_per_s"] == pytest.approx(800e12 / (6 * products + causal))
    assert rates[0]["sustained_tokens_per_s"] == pytest.approx(600e12 / (6 * products + causal))


def test_a_card_without_bf16_trains_in_fp16_and_a_rate_above_its_bound_is_refused():
    v100, a100 = (card_limits.load_card(name) for name in ("Tesla V100-SXM2-32GB", A100))
    rates = questions.rate_training(model("llama-3-8b"), v100, 2048, 1000)
    assert {row["dtype"] for row in rates} == {"fp16"} and rates[0]["most_tokens_per_s"] > 1000
    assert rates[0]["share_of_datasheet"] == pytest.approx(6 * 8_030_261_248 * 1000 / 125e12)
    table = speed_tables.build_training_table([rates, questions.rate_training(model("llama-3-8b"), a100, 2048, 1000)])
    assert [row[1:3] for row in table.rows[2:4]] == [["Tesla V100-SXM2-32GB", "fp16"], ["A100-SXM4-80GB", "bf16"]]
    assert table.rows[0][4] == "38.5 %"
    with pytest.raises(api.UserError, match=r"TOKENS_PER_S: 4000; .* V100"):
        questions.rate_training(model("llama-3-8b"), v100, 2048, 4000)


E4B = {"model_type": "gemma4_text", "num_hidden_layers": 42, "hidden_size": 2560, "intermediate_size": 10240}
E4B |= {"num_key_value_heads": 2, "num_kv_shared_layers": 18, "dtype": "bfloat16"}


@pytest.mark.parametrize("config", [E4B, config_file.SHIPPED_MODELS["llama-3.2-1b"]["config"]])
def test_a_rate_below_the_bound_is_below_the_peak_where_the_embedding_is_the_head(config):
    found = build_model("mine", "made up", config)
    card = replace(CARD, datasheet_tflops=CEILINGS.tflops)
    (_, _, causal) = questions.rate_training(found, card, 4096, None)
    (parameters, _, causal) = questions.rate_training(found, card, 4096, 0.99 * causal["most_tokens_per_s"])
    assert 0.5 < parameters["share_of_datasheet"] < causal["share_of_datasheet"] < 1


def test_a_state_is_read_and_written_once_and_multiplied_three_times_by_every_token():
    found = build_model("mine", "made up", {"model_type": "qwen3_5_text", "dtype": "bfloat16"})
    layers, elements = 24, 32 * 128 * 128  # of 32 layers; a matrix for each head, in fp32
    state_bytes = layers * (4 * elements + 2 * (2 * 16 * 128 + 32 * 128) * 3)  # and inputs of the convolution
    for operations, states, tokens in (
        (step_operations(found, 2, 1000, BF16), 2 * 2, 2),
        (verification_operations(found, 2, 5, 1000, BF16), 2 * 2, 2 * 5),
        (prefill_operations(found, 1000, 400, BF16), 2, 600),
        (prefill_operations(found, 1000, 0, BF16), 1, 1000),  # without one to read
    ):
        assert total(operations, "bytes", "state") == states * state_bytes
        assert total(operations, "flops", "state") == tokens * layers * 2 * 3 * elements
        assert {one.product_dtype for one in operations if one.part == "state"} == {"fp32" if states == 4 else "bf16"}
    parameters, full, causal = (row["flops_per_token"] for row in questions.rate_training(found, CARD, 1000, None))
    of_states = 6 * layers * 3 * elements
    assert full - parameters - of_states == 12 * 8 * 16 * 256 * 1000
    assert causal - parameters - of_states == pytest.approx(12 * 8 * 16 * 256 * 1001 / 2)


def test_experts_windows_and_latents_are_counted_as_they_are_trained():
    counts = {}
    for name in ("gpt-oss-20b", "deepseek-v3"):
        rates = questions.rate_training(model(name), CARD, 1000, None)
        counts[name] = [row["flops_per_token"] for row in rates]
    weights, full, causal = counts["gpt-oss-20b"]
    assert full - weights == 12 * 24 * 64 * 64 * 1000
    windowed = sum(min(place, 128) for place in range(1, 1001))
    assert causal - weights == pytest.approx(12 * 12 * 64 * 64 * (1000 * 1001 / 2 + windowed) / 1000)
    weights, full, _ = counts["deepseek-v3"]
    assert weights == 6 * model("deepseek-v3").active_parameters and full - weights == 6 * 61 * 128 * 320 * 1000


@pytest.mark.parametrize(
    ("name", "card", "tokens", "rate", "mfu"),
    [
        ("llama-3-8b", A100, 8192, 2904, 0.568),
        ("llama-3-70b", A100, 8192, 331, 0.517),
        ("llama-3-8b", H200, 4096, 10471, 0.578),
    ],
)
def test_published_mfu_is_reproduced(name, card, tokens, rate, mfu):
    loaded = card_limits.load_card(card)
    rates = questions.rate_training(model(name), loaded, tokens, rate)
    (palm,) = [row for row in rates if row["flops_counted"] == questions.MFU_COUNT]
    assert f"MFU {100 * mfu:.1f} %" in questions.describe_training(rates)
    assert palm["share_of_datasheet"] == pytest.approx(mfu, abs=5e-4) and rate < palm["most_tokens_per_s"]
    assert (palm["share_of_sustained"] is None) == (card == A100)
