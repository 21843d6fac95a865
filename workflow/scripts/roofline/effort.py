"""How much time a run may take: the budgets that an effort gives to what the settings leave null."""

from collections.abc import Mapping

EFFORTS = ("quick", "default", "thorough")
# By rule and key, one value an effort: seconds, except sweep_points, which is working-set sizes an octave.
BUDGETS = {
    ("peak_flops", "time_budget_s"): (0.3, 0.4, 10),
    ("peak_flops", "sustained_s"): (0, 2, 10),
    ("bandwidth", "time_budget_s"): (0.1, 0.2, 3),
    ("bandwidth", "sweep_points"): (2, 3, 8),
    ("decode_attn", "time_budget_s"): (0.03, 0.06, 2),
}


def fill(config: Mapping) -> dict:
    """The settings with every budget that is null replaced by what their effort gives; what is given stays."""
    filled = dict(config)
    place = EFFORTS.index(config["effort"])
    for (rule, key), by_effort in BUDGETS.items():
        if config[rule][key] is None:
            filled[rule] = {**filled[rule], key: by_effort[place]}
    return filled
