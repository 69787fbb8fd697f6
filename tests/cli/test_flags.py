from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.cli import flags
from catro_deploy.settings import Settings, TrainSettings

TABLES = {
    name: getattr(flags, name)
    for name in ("MODEL", "DATA", "TRAIN", "PRUNE", "FINETUNE", "EXPORT", "VERIFY", "BENCH", "PROFILE", "USE", "RUN")
}


EVERY = dict.fromkeys(flag for table in TABLES.values() for flag in table)


@pytest.mark.parametrize("flag", EVERY, ids=lambda flag: flag.name)
def test_every_flag_stands_for_settings_and_offers_their_choices(flag):
    for setting in flag.settings:
        section, key = setting.split(".")
        model = TrainSettings if section == "train" else type(getattr(Settings(), section))
        field = model.model_fields[key]
        if get_args(flag.type) and isinstance(get_args(flag.type)[0], str):
            assert get_args(flag.type) == get_args(field.annotation)


def test_no_command_has_a_flag_twice():
    for table in TABLES.values():
        names = [flag.name for flag in table]
        assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["speed_limits"], ["speed_limits"]),
        (["1,2", "5"], [1, 2, 5]),
        ([" a b , c,"], ["a b", "c"]),
        (["0", "007", "-1"], [0, "007", "-1"]),
        ([], []),
    ],
)
def test_names_are_split(texts, names):
    assert flags.split_names(texts) == names


@given(st.lists(st.integers(0, 10**6), min_size=1))
def test_commas_and_repetition_mean_the_same(indices):
    assert flags.split_names([",".join(map(str, indices))]) == flags.split_names(list(map(str, indices))) == indices
