"""The bound of a decode step: bytes and FLOPs, its time under ceilings, what fits, and the command."""

import csv
import json
import re
from types import SimpleNamespace

import config_file
import decode_step
import decoding
import pytest
import speed_picture
import speed_tables
from bound import CardCeilings, CardLimits, bound_step, bound_steps
from number_formats import PLAIN_FORMATS
from operations import step_operations
from workflow_run import CHECKOUT

from roofline.api import UserError, open_run

NAMES = list(config_file.SHIPPED_MODELS)
MODELS = {name: config_file.read_model(config_file.find_model(name)) for name in NAMES}
CARD = CardCeilings(4000.0, {"bf16": 800.0, "fp16": 800.0, "fp32": 50.0, "fp8_e4m3": 1500.0})
BF16 = PLAIN_FORMATS["bf16"]
REFERENCE = CHECKOUT / "reference" / "nvidia-h200"


def at(name, batch, context, card):
    return bound_step(step_operations(MODELS[name], batch, context, BF16), card)


@pytest.mark.parametrize("name", ["llama-3-8b", "llama-3.2-1b", "gpt-2"])
def test_a_dense_step_reads_every_weight_once_a_row_of_each_table_and_the_keys_and_values(name):
    model, batch, context = MODELS[name], 3, 100
    read = sum(one.count * one.bytes for one in step_operations(model, batch, context, BF16))
    tables = sum(one.bytes for one in model.tables)
    rows = batch * sum(one.format.matrix_bytes(1, one.inputs) for one in model.tables)
    head = model.head.bytes if model.tied else 0  # the table again, as a matrix
    assert read == model.weight_bytes - tables + rows + head + batch * model.cache_bytes(context, BF16)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def made(capsys, *arguments) -> tuple[int, str]:
    try:
        return decoding.main(list(arguments)), capsys.readouterr().out
    except UserError as error:
        return 1, str(error)


def test_the_command_gives_the_speed_on_a_card_that_was_measured_and_one_by_its_datasheet(capsys):
    status, said = made(capsys, "llama-3-70b", "--card", str(REFERENCE), "--batch", "1", "--context", "1024")
    read = next(c.gb_per_s for c in open_run(REFERENCE).roofline.ceilings if c.name == "hbm_read")
    expected = 1 / at("llama-3-70b", 1, 1024, card=CardCeilings(read, {"bf16": 800.0})).seconds
    found = re.search(r"([\d.]+)\s+tokens/s", said)
    assert status == 0 and float(found.group(1)) == pytest.approx(expected, rel=0.01)
    assert re.search(r"28\s+sequences\s+of\s+1024", said)
    assert (decoding.FOLDER / "llama-3-70b.png").stat().st_size
    (step,) = json.loads((decoding.FOLDER / "llama-3-70b.json").read_text())["steps"]
    assert step["sustained_s"] >= step["bound_s"], "reads under load are faster by noise"
    assert step["tokens_per_s"] == pytest.approx(expected) and step["measured_s"] is None
    cards = f"{REFERENCE},NVIDIA A100-SXM4-80GB"
    status, said = made(capsys, "mixtral-8x7b", "--card", cards, "--batch", "8", "--context", "1024")
    assert status == 0 and "datasheet" in said
    (row,) = re.findall(r"^ +8  .*", said, re.MULTILINE)
    expected, most = map(float, row.split()[2:4])
    assert (expected, most) == pytest.approx((433, 1389), rel=0.01)


DRAFTS = {"drafts": 2, "accepted": 1.5, "draft_parameters": 1e9, "answer": 0}
REQUEST = {"prompt": 1000, "prefix": 10, "answer": 9, "drafts": 0, "usd_per_hour": 2.5}


@pytest.mark.parametrize(
    ("further", "given"),
    [(["--out=9", "--prefix=10"], REQUEST), (["--draft=2", "--accept=1.5", "--draft-params=1e9"], DRAFTS)],
)
def test_every_answer_is_a_row_of_json_and_csv(capsys, further, given):
    asked = ["--in=1000", "--price=2.5", "--train=4096", *further]
    status, said = made(capsys, "llama-3-8b", "--card", str(REFERENCE), "--batch=1,8", *asked, "--tokens-per-s=9600")
    assert status == 0 and max(map(len, said.splitlines())) <= 100
    data = json.loads((decoding.FOLDER / "llama-3-8b.json").read_text())
    lines = [*csv.DictReader((decoding.FOLDER / "llama-3-8b.csv").open())]
    assert {line["schema_version"] for line in lines} == {str(data["schema_version"])}
    assert [line["question"] for line in lines] == ["steps"] * 2 + ["training"] * 3
    assert all({name: row[name] for name in given} == given for row in data["steps"])
    assert [float(lines[1][name]) for name in given] == [*given.values()]
    for line, row in zip(lines, data["steps"] + data["training"], strict=True):
        for name in ("first_token_s", "output_tokens_per_s", "speculative_tokens_per_s", "share_of_sustained"):
            assert float(line[name] or -1) == (row.get(name) or -1)
    assert float(lines[0]["seconds_by_part.MLP"]) == data["steps"][0]["seconds_by_part"]["MLP"]


@pytest.mark.parametrize("card", [[], ["--card", str(REFERENCE)]])
def test_without_a_model_those_with_a_name_are_listed_with_their_sizes_and_whether_they_fit(capsys, card):
    status, said = made(capsys, *card)
    rows = {row["model"]: row for row in json.loads((decoding.FOLDER / "models.json").read_text())["models"]}
    assert status == 0 and [*rows] == NAMES and all(re.search(rf"^ *{name} ", said, re.MULTILINE) for name in NAMES)
    assert rows["llama-3-70b"]["parameters"] == MODELS["llama-3-70b"].parameters
    fits = [[*rows[name]["largest_batch"].values()] for name in ("llama-3-70b", "deepseek-v3")]
    assert fits == ([[28], [0]] if card else [[], []])


def test_experts_are_expected_to_be_chosen_at_random_and_the_bound_takes_the_fewest():
    card = CardLimits("A card", "made up", 141 * 10**9, "hbm_read", CARD)
    found = bound_steps(MODELS["mixtral-8x7b"], card, [1, 8], [1024], BF16)
    expert = 3 * 4096 * 14336 * 2  # bytes
    distinct = 8 * (1 - (1 - 2 / 8) ** 8)
    assert found[0].expected == found[0].bound
    more = found[1].expected.memory_s - found[1].bound.memory_s
    assert more == pytest.approx(32 * (distinct - 2) * expert / 4e12)
    table = speed_tables.build_card_table(found, {})
    cells = dict(zip(table.columns, table.rows[1], strict=True))
    assert float(cells["tokens/s by uniform routing"]) == pytest.approx(found[1].tokens_per_s, rel=0.01)
    assert float(cells["tokens/s at most"]) == pytest.approx(found[1].most_tokens_per_s, rel=0.01)
    assert "tokens/s by uniform routing" not in str(
        speed_tables.build_card_table(bound_steps(MODELS["gpt-2"], card, [8], [64], BF16), {})
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-model", "--card", str(REFERENCE)], ["no-such-model", "llama-3-8b"]),
        (["llama-3-8b", "--card", "NVIDIA A100"], ["A100-SXM4-80GB"]),
        (["gpt-2", "--card", str(REFERENCE), "--context", "4096"], ["gpt-2", "4096", "1024"]),
        (["gpt-2", "--cache=int4"], ["CACHE: 'int4'", "bf16, fp16, fp8"]),
        (["gpt-2", "--batch=0"], ["BATCH: '0'"]),
        *((["gpt-2", f"--price={price}"], ["PRICE", price]) for price in ("0", "-1", "nan", "inf", "a", "")),
        (["gpt-2", "--card", str(REFERENCE), "--price=1,2"], ["PRICE: 2", "1 card"]),
        *((["gpt-2", f"--in={tokens}"], ["IN", tokens]) for tokens in ("0", "-5", "1.5", "1,2")),
        (["gpt-2", "--in=9", "--prefix=9"], ["PREFIX: 9", "IN"]),
        *((["gpt-2", "--out=5", one], ["OUT: 5", "IN"]) for one in ("--batch=1", "--context=5")),
        (["gpt-2", "--in=1025"], ["gpt-2", "1025", "1024"]),
        (["gpt-2", "--card", str(REFERENCE), "--train=1025"], ["gpt-2", "1025", "1024"]),
        (["gpt-2", "--in=9", "--out=5", "--draft=3", "--accept=2", "--draft-params=1e9"], ["DRAFT", "OUT"]),
        *(([one], ["MODEL"]) for one in ("--batch=1", "--in=9", "--measure")),
        (["gpt-2", "--context=1022", "--draft=3", "--accept=2", "--draft-params=1e9"], ["1025", "1024"]),
        (["gpt-2", f"--card={REFERENCE},{REFERENCE}", "--train=9", "--tokens-per-s=9"], ["TOKENS_PER_S: 9", "CARD"]),
        (["gpt-2", "--tokens-per-s=9"], ["TOKENS_PER_S: 9", "TRAIN"]),
        (["gpt-2", "--draft=3"], ["ACCEPT", "DRAFT + 1 (4)"]),
        *((["gpt-2", "--draft=3", f"--accept={given}"], ["ACCEPT", given]) for given in ("0.9", "4.1", "a")),
        *((["gpt-2", one], ["DRAFT"]) for one in ("--accept=2", "--draft-params=1e9")),
        (["gpt-2", "--draft=3", "--accept=2"], ["gpt-2", "num_nextn_predict_layers", "DRAFT_PARAMS"]),
        *((["gpt-2", "--in=9", one], ["1025", "1024"]) for one in ("--out=1017", "--context=1025")),
    ],
)
def test_what_is_wrong_is_named_in_a_line(capsys, arguments, words):
    status, said = made(capsys, *arguments)
    assert status == 1 and len(said.splitlines()) == 1 and all(word in said for word in words)


@pytest.mark.parametrize(
    ("here", "words"),
    [({}, "has no GPU"), ({"gpu0": SimpleNamespace(kind="gpu", name="A card")}, "of NVIDIA H200; allowed: .* A card")],
)
def test_a_step_is_measured_only_on_a_gpu_of_the_card(capsys, monkeypatch, here, words):
    monkeypatch.setattr(decoding.api, "discover", lambda: here)
    status, said = made(capsys, "llama-3-8b", "--card", str(REFERENCE), "--measure")
    assert status == 1 and re.fullmatch(f"MEASURE=1: .*{words}.*", said)


def test_a_measured_step_is_shown_with_its_share_of_the_bound():
    card = CardLimits("A card", "made up", 80 << 30, "hbm_read", CARD)
    found = bound_steps(MODELS["llama-3-8b"], card, [1, 8], [1024], BF16)
    times = {(1, 1024): speed_tables.MeasuredStep(2 * found[0].bound.seconds, 2.5)}
    table = speed_tables.build_card_table(found, times)
    first, other = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    assert (first["of the bound"], first["J per token"], other["measured"]) == ("50 %", "2.5", "-")
    assert "measured" not in speed_tables.build_card_table(found, {}).columns
    (axes,) = speed_picture.draw_speeds([found], times).axes
    (cross,) = [line for line in axes.lines if line.get_marker() == "x"]
    assert list(cross.get_xdata()) == [1] and list(cross.get_ydata()) == [found[0].tokens_per_s / 2]


@pytest.mark.parametrize(("energy", "joules"), [(SimpleNamespace(joules_per_work=2.5), 2.5), (None, None)])
def test_a_step_is_repeated_for_its_joules_per_token(monkeypatch, energy, joules):
    monkeypatch.setattr(decode_step.DecodeStep, "inputs", lambda *case, seed: {})
    monkeypatch.setattr(decode_step.Chain, "make_prepared", lambda *of: SimpleNamespace(step=lambda scope: None))
    monkeypatch.setattr(decoding.api, "measure_memory_load", lambda *of: of[2] == 8 and SimpleNamespace(energy=energy))
    entry = config_file.find_model("llama-3.2-1b")
    assert decoding.time_step(None, entry, 8, 64, 4e-3, None) == (4e-3, joules)
