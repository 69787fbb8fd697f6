"""The shipped measuring protocols, and the errors reported for others."""

from pathlib import Path

import pytest

from catro_deploy import resources
from catro_deploy.calibration import load_int8_recipe, load_latency_protocol, load_profile_protocol
from catro_deploy.errors import SettingsError

VALID = {
    "candidates": 7, "squares": 2, "limit_s": 60.0, "rounds": 3, "block_ms": 4.0, "min_runs": 4, "max_runs": 12,
    "together": 16, "disagreement": 0.15, "held_out": 20, "seed": 0,
}  # fmt: skip


def written(folder: Path, **changes: object) -> str:
    content = VALID | changes
    file = folder / "mine.toml"
    file.write_text("\n".join(f"{key} = {value}" for key, value in content.items() if value is not None))
    return str(file)


@pytest.mark.parametrize("name", resources.names("calibration/profile"))
def test_shipped_profile_protocols_are_valid(name):
    assert load_profile_protocol(name).held_out >= 20


@pytest.mark.parametrize("name", resources.names("calibration/latency"))
def test_shipped_latency_protocols_are_valid(name):
    assert load_latency_protocol(name).seconds > 0


def test_a_file_of_the_users(tmp_path):
    assert load_profile_protocol(written(tmp_path, rounds=5)).model_dump() == VALID | {"rounds": 5}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"candidates": 4}, r"\bcandidates is 4\b.*\b2, 3, 5, 7, 11, 13\b"),
        ({"candidates": 17}, r"\bcandidates is 17\b.*\b2, 3, 5, 7, 11, 13\b"),
        ({"max_runs": 3}, r"\bmax_runs\b.*\b3\b.*\bmin_runs\b"),
        ({"held_out": 25}, r"\bheld_out\b.*\b49\b"),
        ({"candidates": 0}, "candidates: "),
        ({"rounds": 0}, "rounds: "),
        ({"rounds": 2.5}, "rounds: "),
        ({"block_ms": -1}, "block_ms: "),
        ({"limit_s": "inf"}, "limit_s: "),
        ({"disagreement": 0}, "disagreement: "),
        ({"seed": -1}, "seed: "),
        ({"seed": None}, "seed: "),
        ({"colour": 3}, "colour: "),
        ({"seed": "['"}, "end of document"),
    ],
)
def test_what_is_wrong_with_a_profile_protocol_is_named(tmp_path, changes, reason):
    file = written(tmp_path, **changes)
    with pytest.raises(SettingsError, match=reason) as caught:
        load_profile_protocol(file)
    assert file in caught.value.problem
    assert "standard.toml" in caught.value.hint


@pytest.mark.parametrize(("classes", "each"), [(1, 64), (16, 64), (17, 60), (43, 23), (1000, 1), (2000, 1)])
def test_of_many_classes_fewer_images_are_calibrated_with(classes, each):
    assert load_int8_recipe("standard").samples_of_each(classes) == each  # 64, or a share of 1024


def test_an_unknown_name_is_reported_with_the_known_ones():
    with pytest.raises(SettingsError, match=r"'standart'.*\bstandard\b") as caught:
        load_profile_protocol("standart")
    assert "quick, standard" in caught.value.hint
