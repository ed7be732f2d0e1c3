"""What a user says of what nodes draw: which curve is whose, and one line for each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.errors import ConfigError
from shared.model.power import CURVE_LABEL, MOST_BYTES, PUBLISHED, PWR, TYPE_LABEL, NodeWatts, parse_power_curves

XEON = NodeWatts((15, 120), cores=32, steps=True)
OWN = """
[gpus.T4]
idle = 8
peak = 66.5

[gpus."*"]
idle = 1
peak = 2

[nodes."m5.large"]
watts = [40, 95.5, 120]

[nodes.mine]
watts = [15, 120]
cores = 32
steps = true

[nodes.H100]
watts = [1, 2]

[nodes."*"]
watts = [10, 20]
off_when_empty = true
"""


def test_nothing_said_leaves_what_is_published():
    assert parse_power_curves("") == PUBLISHED


def test_a_users_own_curves_stand_over_the_published_ones():
    curves = parse_power_curves(OWN)
    assert (curves.of_gpu("T4").idle, curves.of_gpu("T4").peak) == (8, 66.5)
    assert curves.of_gpu("P100") == PUBLISHED.of_gpu("P100")
    assert (curves.of_gpu("unheard-of").idle, curves.of_gpu("").peak) == (1, 2)
    assert curves.nodes["m5.large"].watts == (40, 95.5, 120)
    assert curves.nodes["mine"] == XEON
    assert curves.of_node({}, "").off_when_empty


def test_a_curve_is_found_by_its_label_then_by_the_type_then_by_the_gpu_model():
    curves = parse_power_curves(OWN)
    typed = {TYPE_LABEL: "m5.large"}
    assert curves.of_node({**typed, CURVE_LABEL: "mine"}, "H100") == XEON
    assert curves.of_node({**typed, CURVE_LABEL: "no-such"}, "H100") == curves.nodes["m5.large"]
    assert curves.of_node({TYPE_LABEL: "m6i.large"}, "H100") == curves.nodes["H100"]
    assert curves.of_node({TYPE_LABEL: "m6i.large"}, "T4") == curves.node


@pytest.mark.parametrize("model", ["T4", "P100", "V100M16", "V100M32", "A10", "G2", "G3"])
def test_every_model_of_openb_has_published_figures(model):
    assert model in PWR.gpus
    assert PWR.gpus[model].idle < PWR.gpus[model].peak


@pytest.mark.parametrize("sharing", ["-SHARED", "-MIG-3g.20gb", "-MIG-1g.5gb-SHARED"])
def test_a_gpu_that_is_shared_draws_as_the_whole_one_unless_it_is_named(sharing):
    for model in ("Tesla-T4", "NVIDIA-A100-SXM4-40GB"):
        assert PUBLISHED.of_gpu(model + sharing) == PUBLISHED.gpus[model]
    named = f"[gpus.'H200{sharing}']\nidle = 1\npeak = 2\n[gpus.H200]\nidle = 3\npeak = 4\n[nodes.H200]\nwatts = [1, 2]"
    curves = parse_power_curves(named)
    assert (curves.of_gpu(f"H200{sharing}").peak, curves.of_gpu("H200").peak) == (2, 4)
    assert curves.of_node({}, f"H200{sharing}") == curves.nodes["H200"]


def test_the_largest_gpus_do_not_look_frugal():
    assert PUBLISHED.of_gpu("NVIDIA-H100-80GB-HBM3").peak > PUBLISHED.of_gpu("NVIDIA-A100-SXM4-80GB").peak > 300


def test_the_example_in_the_documentation_is_what_openb_is_measured_by():
    text = Path("docs/examples/power-curves.toml").read_text()
    found = parse_power_curves(text)
    assert found == PWR


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gpus = 3", "gpus is no table"),
        ("[gpus]\nT4 = 70", "gpus.'T4': Expected `object`"),
        ("[gpus.T4]\nidle = 10", "gpus.'T4': Object missing required field `peak`"),
        ("[gpus.T4]\nidle = 10\npeak = 70\nmost = 80", "gpus.'T4': Object contains unknown field `most`"),
        ("[gpus.T4]\nidle = 80\npeak = 70", "gpus.'T4': idle, peak: fall from 80 to 70"),
        ("[gpus.T4]\nidle = -1\npeak = 70", "gpus.'T4': idle, peak: -1 is not 0 to 100000"),
        ("[gpus.T4]\nidle = 1\npeak = nan", "nan is not 0 to 100000"),
        ("[gpus.T4]\nidle = 1\npeak = true", "gpus.'T4': Expected `float`, got `bool`"),
        ("[gpus.T4]\nidle = 1\npeak = '70'", "gpus.'T4': Expected `float`, got `str`"),
        ("[nodes.a]\nwatts = 5", "nodes.'a': Expected `array`"),
        ("[nodes.a]\nwatts = [5]", "nodes.'a'.watts: 1 figures"),
        ("[nodes.a]\nwatts = []", "nodes.'a'.watts: 0 figures"),
        ("[nodes.a]\nwatts = [5, 4]", "nodes.'a'.watts: fall from 5 to 4"),
        ("[nodes.a]\nwatts = [5, inf]", "nodes.'a'.watts: inf is not 0 to 100000"),
        ("[nodes.a]\nwatts = [1, 2]\ncores = -1", "nodes.'a'.cores: -1 is not 1 to 4096"),
        ("[nodes.a]\nwatts = [1, 2]\ncores = nan", "nodes.'a'.cores: nan is not 1 to 4096"),
        ("[nodes.a]\nwatts = [1, 2]\nsteps = true", "nodes.'a'.steps: needs cores"),
        ("[nodes.a]\nwatts = [1, 2, 3]\nsteps = true\ncores = 2", "nodes.'a'.steps: 3 figures"),
        ("[servers.a]\nwatts = [1, 2]", "'servers' is not known"),
        ("[nodes.a\nwatts", "is no TOML"),
        (f"[nodes.a]\nwatts = [1, {10**400}]", "nodes.'a'"),
        (f"[nodes.a]\nwatts = [1, {'9' * 5000}]", "is no TOML"),
        ("[nodes.'']\nwatts = [1, 2]", "nodes has an entry without a name"),
        ("[gpus.'']\nidle = 1\npeak = 2", "gpus has an entry without a name"),
        ('[gpus.T4]\nidle = 1\npeak = 2\n"a\\nb" = 3', "unknown field `a b`"),
        ("#" * (MOST_BYTES + 1), "more than"),
        ("#" * (MOST_BYTES - 1) + "ä", "more than"),
    ],
)
def test_each_fault_is_one_line_that_names_the_entry(text, told):
    with pytest.raises(ConfigError) as refused:
        parse_power_curves(text)
    assert told in str(refused.value)
    assert str(refused.value).startswith("power_curves: ")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500
