import tomllib

import pytest

from catro_deploy.toml import toml_differences, toml_mistake


def mistake(text):
    with pytest.raises(tomllib.TOMLDecodeError) as caught:
        tomllib.loads(text)
    return toml_mistake(text, caught.value)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("budget = 0.5x", 'budget = "0.5x"'),
        ("budget = 0.5x   # half", 'budget = "0.5x"'),
        ("target = x86-cpu", 'target = "x86-cpu"'),
        ("reconstruct = True", "reconstruct = true"),
        ("classes = [stop, yield sign, 3]", 'classes = ["stop", "yield sign", 3]'),
        ('name: "x"', 'name = "x"'),
        ('root = "C:\\Users\\me"', "root = 'C:\\Users\\me'"),
        ("[model", "[model]"),
        ("learning_rate = 0,05", "learning_rate = 0.05"),
        ('name = "abc', 'name = "abc"'),
        ("name = \u201cabc\u201d", 'name = "abc"'),
    ],
)
def test_the_line_and_what_it_was_meant_to_be(wrong, meant):
    assert mistake(f"[prune]\nseed = 0\n{wrong}\n\n[finetune]\nepochs = 3\n") == (wrong, meant)
    assert mistake(wrong) == (wrong, meant)


@pytest.mark.parametrize("wrong", ["epochs =", "= 3", "?"])
def test_a_line_that_may_mean_anything_is_only_shown(wrong):
    assert mistake(f"[finetune]\n{wrong}\nseed = 1\n") == (wrong, "")


def test_a_key_that_stands_there_twice_is_shown():
    assert mistake("[finetune]\nseed = 1\nseed = 2\nepochs = 3\n") == ("seed = 2", "")


def test_documents_differ_by_key():
    before = {"prune": {"budget": "0.5x", "seed": 0}, "train": {"epochs": 3}}
    after = {"prune": {"budget": "0.4x", "seed": 0}, "finetune": {"amp": True}}
    assert list(toml_differences(before, after)) == [
        ("prune.budget", '"0.5x"', '"0.4x"'),
        ("train.epochs", "3", "not set"),
        ("finetune.amp", "not set", "true"),
    ]
