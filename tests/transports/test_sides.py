"""Several targets of one network: how they are written, and what is refused."""

import pytest

from catro_deploy.errors import SettingsError, TargetError
from catro_deploy.settings import load_settings, settings_text
from catro_deploy.stages.table import STAGES
from catro_deploy.toml import parse_toml
from catro_deploy.transports.execution import use_of
from catro_deploy.transports.sides import require_sides, sides_of


def settings_of(*targets, **sections):
    return load_settings(None, {"prune": {"target": list(targets)}, **sections})


def test_one_target_gives_the_same_as_before():
    settings = settings_of("jetson-orin")
    assert (settings.prune.target, settings.prune.also) == ("jetson-orin", [])
    (only,) = sides_of(settings)
    assert (only.name, only.settings) == ("jetson-orin", settings)
    require_sides(settings)  # a single target may be estimated


@pytest.mark.parametrize("written", [["x86-cpu", "x86-cpu:fp32"], "x86-cpu, x86-cpu:fp32"])
def test_the_first_of_several_stands_where_it_stood(written):
    settings = load_settings(None, {"prune": {"target": written}, "quantize": {"precision": "int8"}})
    assert (settings.prune.target, settings.prune.also) == ("x86-cpu", ["x86-cpu:fp32"])
    again = load_settings(None, parse_toml(settings_text(settings)))
    assert again.prune == settings.prune


def test_the_same_targets_may_be_named_again_for_a_run_that_has_them(tmp_path):
    before = settings_of("x86-cpu", "x86-cpu:fp32", "arm-cpu")
    written = tmp_path / "run.toml"
    written.write_text(settings_text(before))
    again = load_settings(written, {"prune": {"target": "x86-cpu, x86-cpu:fp32, arm-cpu"}})
    assert again.prune == before.prune
    with pytest.raises(SettingsError, match="twice"):  # in the flags themselves
        sides_of(load_settings(written, {"prune": {"target": "x86-cpu, x86-cpu:fp32, x86-cpu:fp32"}}))


def test_a_side_is_the_same_settings_with_its_number_format():
    first, second = sides_of(settings_of("x86-cpu", "x86-cpu:fp32", quantize={"precision": "int8"}))
    assert [use_of(side.target, side.settings).precision for side in (first, second)] == ["int8", "fp32"]
    assert second.settings.finetune == first.settings.finetune


def test_a_number_format_that_the_run_does_not_make_is_refused():
    with pytest.raises(SettingsError, match="x86-cpu:int8 ") as caught:
        sides_of(settings_of("x86-cpu", "x86-cpu:int8"))
    assert "--precision int8 --target x86-cpu --target x86-cpu:fp32" in caught.value.hint


def test_the_same_target_twice_is_refused():
    with pytest.raises(SettingsError, match=r"x86-cpu .*twice"):
        sides_of(settings_of("x86-cpu", "x86-cpu"))


def test_a_target_or_a_device_that_is_not_known_is_named():
    with pytest.raises(TargetError, match="x86-cpuu"):
        sides_of(settings_of("x86-cpu", "x86-cpuu"))
    with pytest.raises(TargetError, match="nowhere"):
        sides_of(settings_of("x86-cpu", "arm-cpu@nowhere"))


def test_several_targets_are_all_measured():
    with pytest.raises(TargetError, match=r"several targets.*\bjetson-orin\b"):
        require_sides(settings_of("x86-cpu", "jetson-orin"))


def test_a_further_target_is_an_input_of_shipping():
    (shipping,) = [stage for stage in STAGES if stage.name == "ship"]
    one = shipping.outside(settings_of("x86-cpu"))
    two = shipping.outside(settings_of("x86-cpu", "x86-cpu:fp32", quantize={"precision": "int8"}))
    assert "also" not in one
    assert [other["target"]["name"] for other in two["also"]] == ["x86-cpu"]
