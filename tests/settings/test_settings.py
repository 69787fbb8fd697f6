import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.errors import BudgetError, SettingsError
from catro_deploy.records import Budget
from catro_deploy.settings import (
    Settings,
    batch_size,
    follow_recipe,
    follow_train_recipe,
    load_settings,
    settings_from_text,
    settings_text,
)
from catro_deploy.toml import toml_tables, toml_value


def write(folder: Path, text: str) -> Path:
    file = folder / "catro.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_flags_stand_over_the_file_and_the_file_over_defaults(tmp_path):
    file = write(tmp_path, "[prune]\nbudget = '30%flops'\nseed = 7\n")
    settings = load_settings(file, {"prune": {"seed": 9, "target": None}})
    assert (settings.prune.given_budget, settings.prune.seed) == (Budget(0.3, "flops"), 9)
    assert settings.prune.target == "x86-cpu"


def test_without_a_file_there_are_defaults():
    settings = load_settings(None, {})
    assert settings == Settings()
    # Half of the measured latency, with the best available allocation.
    assert (settings.prune.given_budget, settings.prune.allocation, settings.prune.depth) == (
        Budget(0.5, "x"),
        "auto",
        "auto",
    )
    assert settings.profile.protocol == "standard"


def test_paths_of_the_file_start_at_its_folder_those_of_flags_here(tmp_path):
    file = write(tmp_path, "[model]\ncheckpoint = 'a.pth'\n")
    settings = load_settings(file, {"data": {"root": Path("images")}})
    assert settings.model.checkpoint == tmp_path / "a.pth"
    assert settings.data.root == Path("images")


def test_default_paths_start_at_the_files_folder_too(tmp_path):
    settings = load_settings(write(tmp_path, ""), {})
    assert settings.data.root == tmp_path / "data"
    assert settings.model.checkpoint == tmp_path / "baseline.safetensors"


def test_absolute_and_home_paths_stay(tmp_path):
    file = write(tmp_path, "[model]\ncheckpoint = '~/a.pth'\n[data]\nroot = '/images'\n")
    settings = load_settings(file, {})
    assert settings.model.checkpoint == Path.home() / "a.pth"
    assert settings.data.root == Path("/images")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modle = 3", "modle is not a setting. Did you mean model?"),
        ("[finetune]\nepocs = 3", "finetune.epocs is not a setting. Did you mean epochs?"),
        ("[train]\nlearning_rat = 3", "train.learning_rat is not a setting. Did you mean learning_rate?"),
        ("[data]\nbudget = '5%flops'", "data.budget is not a setting. It belongs in [prune]."),
        ("epochs = 3", "epochs is not a setting. It belongs in [train] or [finetune]."),
        ("[prune]\nqqq = 3", "prune.qqq is not a setting.\n"),
        ("model = 3", "model = 3 does not fit"),
        ("[train]\nepochs = 0", "train.epochs = 0 does not fit: Input should be greater than 0."),
        ("[prune]\nsamples_per_class = 1", "prune.samples_per_class = 1 does not fit"),
        ("[train]\nepochs = true", "train.epochs = True does not fit: It is not a switch"),
        ("[verify]\nmax_drop = false", "verify.max_drop = False does not fit: It is not a switch"),
        ("[bench]\nbatches = [1, true]", "bench.batches = [1, True] does not fit: It is not a switch"),
        ("[finetune]\nlearning_rate = nan", "finetune.learning_rate = nan does not fit"),
        ("[prune]\nallocation = 'best'", "prune.allocation = 'best' does not fit"),
        ("[prune]\ndepth = false", "prune.depth = False does not fit"),
        ("[profile]\nprotocl = 'quick'", "profile.protocl is not a setting. Did you mean protocol?"),
        ("[model]\nmean = [0.5]", "mean and std need three values each"),
        (
            "[model]\nmean = [128, 128, 128]\nstd = [51, 63.75, 255]",  # divided by 255
            "Write mean = [0.502, 0.502, 0.502] and std = [0.2, 0.25, 1.0]",
        ),
        ("[model]\nmean = [127.5]\nstd = [0.25]", "Write mean = [0.5] and std = [0.25]"),  # only the mean is wrong
        ("[model]\nmean = [127.5]\nstd = [1]", "Write mean = [0.5] and std = [0.003922]"),
        (  # for pixels in 0..255 that are only scaled
            "[model]\nmean = [0, 0, 0]\nstd = [255, 255, 255]",
            "Write mean = [0.0, 0.0, 0.0] and std = [1.0, 1.0, 1.0]",
        ),
        ("[model", "cannot be read"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
    file = write(tmp_path, text)
    with pytest.raises(SettingsError) as error:
        load_settings(file, {"model": {"name": "cifar_resnet56"}})
    assert message in str(error.value)
    assert str(file) in error.value.problem


def test_a_wrong_member_of_a_list_is_named_once(tmp_path):
    with pytest.raises(SettingsError) as error:
        load_settings(write(tmp_path, "[prune]\nclasses = [1.5]"), {})
    assert error.value.problem.count("prune.classes") == 1


def test_a_wrong_flag_is_named():
    with pytest.raises(SettingsError, match=r"finetune\.epochs = -1\b"):
        load_settings(None, {"finetune": {"epochs": -1}})


def test_a_missing_file_names_init(tmp_path):
    with pytest.raises(SettingsError, match="catro-deploy init"):
        load_settings(tmp_path / "catro.toml", {})


def test_a_file_that_is_not_utf8_is_refused(tmp_path):
    file = tmp_path / "catro.toml"
    file.write_bytes(b'[data]\nname = "\xff"')
    with pytest.raises(SettingsError, match=r"catro\.toml.*utf-8"):
        load_settings(file, {})


def test_written_settings_are_read_back_from_another_folder(tmp_path):
    flags = {
        "data": {"groups": {"two words": [1, 'a "quoted" name\n']}, "root": Path("images")},
        "train": {"epochs": 3},
        "prune": {"classes": ["Straße", 4], "epsilon": 1e-12},
    }
    settings = load_settings(None, flags)
    again = load_settings(write(tmp_path, settings_text(settings)), {})
    there = {
        "data": {"root": Path.cwd() / "images"},
        "model": {"checkpoint": Path.cwd() / "baseline.safetensors"},
    }
    assert again == load_settings(None, {**flags, "data": flags["data"] | there["data"], "model": there["model"]})
    assert settings_text(again) == settings_text(settings)


texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=10)


@given(values)
def test_toml_values_survive_a_round_trip(value):
    assert tomllib.loads(f"key = {toml_value(value)}") == {"key": value}


def test_toml_tables():
    text = toml_tables({"a": {"x": 1, "y": Path("p/q")}, "b": {}})
    assert text == '[a]\nx = 1\ny = "p/q"\n\n[b]\n'


def test_a_recipe_fills_in_what_is_left_out(tmp_path):
    file = tmp_path / "catro.toml"
    file.write_text('[finetune]\nrecipe = "paper"\nlearning_rate = 0.02\n\n[train]\nrecipe = "paper"\n')
    found = load_settings(file, {"finetune": {"epochs": 7}})
    finetune = found.finetune
    assert (finetune.epochs, finetune.learning_rate, finetune.schedule) == (7, 0.02, "step")
    assert found.train.epochs == 300


def test_a_recipe_that_a_flag_names_stands_over_the_file(tmp_path):
    """The file of a continued run contains every value of its first recipe."""
    began = load_settings(None, {"finetune": {"recipe": "paper", "batch_size": 32}})
    (tmp_path / "run.toml").write_text(settings_text(began))
    going_on = load_settings(tmp_path / "run.toml", {"finetune": {"recipe": "fast", "epochs": 7}}).finetune
    assert going_on == load_settings(None, {"finetune": {"recipe": "fast", "epochs": 7, "batch_size": 32}}).finetune
    assert (going_on.epochs, going_on.schedule, going_on.ema) == (7, "cosine", 0.998)


def test_an_unknown_recipe_is_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"finetune\.recipe = 'quick'"):
        load_settings(None, {"finetune": {"recipe": "quick"}})


def test_settings_written_out_read_the_same_whatever_their_recipe(tmp_path):
    first = load_settings(None, {"finetune": {"recipe": "fast", "ema": 0.9}})
    (tmp_path / "run.toml").write_text(settings_text(first))
    assert load_settings(tmp_path / "run.toml", {}).finetune == first.finetune


@pytest.mark.parametrize(
    ("recipe", "reconstructed", "expected"),
    [
        ("auto", False, (0.05, 1.0, 0.0, 0.0)),
        ("auto", True, (None, 0.0, None, 0.9)),
        ("none", True, (0.05, 1.0, 0.0, 0.0)),
        ("gentle", False, (None, 0.0, None, 0.9)),
        ("fast", True, (0.1, 5.0, 0.998, 0.5)),
        ("paper", False, (0.01, 0.0, 0.0, 0.0)),
    ],
)
def test_each_recipe_has_its_values_and_auto_depends_on_the_plan(recipe, reconstructed, expected):
    loaded = load_settings(None, {"finetune": {"recipe": recipe}}).finetune
    found = follow_recipe(loaded, reconstructed)
    assert (found.learning_rate, found.warmup_epochs, found.ema, found.distill) == expected
    assert found.recipe == {"auto": "gentle" if reconstructed else "none"}.get(recipe, recipe)


@pytest.mark.parametrize(
    ("images", "batch"), [(2, 16), (405, 16), (959, 16), (960, 32), (1919, 32), (1920, 64), (3840, 128), (39_209, 128)]
)
def test_an_epoch_has_some_30_steps_where_the_images_allow_it(images, batch):
    assert batch_size(images) == batch


@pytest.mark.parametrize(
    ("recipe", "given", "batch", "rate"),
    [
        ("none", {}, 16, 0.05 / 8),
        ("fast", {}, 16, 0.1 / 8),
        ("paper", {}, 128, 0.01),  # as in the paper, independent of the images
        ("gentle", {}, 16, None),  # depends on the number of steps
        ("none", {"batch_size": 64}, 64, 0.025),
        ("none", {"batch_size": 512}, 512, 0.05),
        ("none", {"learning_rate": 0.03}, 16, 0.03),
    ],
)
def test_batch_size_and_rate_follow_the_images_where_they_are_not_given(recipe, given, batch, rate):
    loaded = load_settings(None, {"finetune": {"recipe": recipe} | given}).finetune
    found = follow_recipe(loaded, True, images=405)
    assert (found.batch_size, found.learning_rate) == (batch, rate)


@pytest.mark.parametrize(
    ("given", "images", "expected"),
    [
        ({}, 405, (16, 0.1 / 8)),
        ({}, 10_000, (128, 0.1)),
        ({"batch_size": 64}, 405, (64, 0.05)),
        ({"recipe": "paper"}, 405, (128, 0.1)),
        ({"learning_rate": 0.2}, 405, (16, 0.2)),
    ],
)
def test_a_baseline_is_trained_likewise(given, images, expected):
    found = follow_train_recipe(load_settings(None, {"train": {"epochs": 3} | given}).train, images)
    assert (found.batch_size, found.learning_rate) == expected


@pytest.mark.parametrize("recipe", ["auto", "gentle", "fast", "paper", "none"])
@pytest.mark.parametrize("labelled", [True, False])
def test_without_labels_every_recipe_learns_from_the_original_alone(recipe, labelled):
    loaded = load_settings(None, {"finetune": {"recipe": recipe}}).finetune
    found, expected = (follow_recipe(loaded, True, known) for known in (labelled, True))
    assert found == (expected if labelled else expected.model_copy(update={"distill": 1.0}))
    given = load_settings(None, {"finetune": {"recipe": recipe, "distill": 0.3}}).finetune
    assert follow_recipe(given, True, labelled).distill == 0.3


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, 10.0), ({"distill": 0.5}, 10.0), ({"distill": 0.0}, 0.0), ({"distill": 0.0, "distill_features": 2.0}, 2.0)],
)
def test_feature_maps_are_not_learned_from_an_original_whose_outputs_are_not(given, expected):
    loaded = load_settings(None, {"finetune": {"recipe": "gentle", **given}}).finetune
    assert follow_recipe(loaded, reconstructed=True).distill_features == expected


def test_a_measured_worth_takes_reconstruction():
    with pytest.raises(SettingsError, match="reconstruct = true") as caught:
        load_settings(None, {"prune": {"worth": "measured", "reconstruct": False}})
    assert "Leave reconstruct at its default" in caught.value.hint


def test_without_a_recipe_it_is_auto():
    assert load_settings(None, {}).finetune.recipe == "auto"


@pytest.mark.parametrize("recipe", ["auto", "gentle"])
@pytest.mark.parametrize(
    "given",
    [
        {"learning_rate": 0.3},
        {"ema": 0.0},
        {"distill": 0.0},
        {"distill_features": 0.0},
        {"warmup_epochs": 2.0},
        {"max_grad_norm": 0.0},
    ],
    ids=str,
)
def test_what_is_given_stands_over_every_recipe(tmp_path, given, recipe):
    loaded = load_settings(None, {"finetune": {"recipe": recipe, **given}})
    again = load_settings(write(tmp_path, settings_text(loaded)), {})
    (key,) = given
    for settings in (loaded, again):
        assert getattr(follow_recipe(settings.finetune, reconstructed=True), key) == given[key]


def test_auto_after_a_recipe_forgets_its_values(tmp_path):
    fast = load_settings(None, {"finetune": {"recipe": "fast"}})
    continued = load_settings(write(tmp_path, settings_text(fast)), {"finetune": {"recipe": "auto"}}).finetune
    assert (continued.learning_rate, continued.ema, continued.distill, continued.epochs) == (None, None, None, 40)


def test_a_limit_of_steps_is_read_and_written_only_where_there_is_one(tmp_path):
    limited = load_settings(None, {"finetune": {"steps": 100}})
    assert load_settings(write(tmp_path, settings_text(limited)), {}).finetune.steps == 100
    assert "steps" not in settings_text(load_settings(None, {"finetune": {"epochs": 0}}))


def test_the_budget_is_read_with_the_settings_and_written_in_one_form(tmp_path):
    settings = load_settings(None, {"prune": {"budget": " 1.5 ms"}})
    assert settings.prune.budgets == (settings.prune.given_budget,) == (Budget(1500.0, "us"),)
    assert 'budget = "1500us"' in settings_text(settings)
    assert settings.model_dump(mode="json")["prune"]["budget"] == "1500us"
    assert load_settings(write(tmp_path, settings_text(settings)), {}).prune == settings.prune


def test_a_budget_that_cannot_be_read_is_refused_when_settings_are_read(tmp_path):
    with pytest.raises(BudgetError, match="'50%'"):
        load_settings(write(tmp_path, "[prune]\nbudget = '50%'"), {})


@pytest.mark.parametrize(
    ("key", "number", "example"), [("budget", 0.5, "400us"), ("max_size", 300, "300kB"), ("max_energy", 3.0, "3mJ")]
)
def test_a_number_without_a_unit_is_no_budget(key, number, example):
    with pytest.raises(BudgetError, match=f"'{number}' cannot be read") as caught:
        load_settings(None, {"prune": {key: number}})
    assert example in caught.value.hint


def test_a_budget_that_is_searched_is_no_amount():
    settings = load_settings(None, {"prune": {"budget": "auto"}})
    assert settings.prune.budget == "auto"
    with pytest.raises(BudgetError, match=r"\bauto\b"):
        _ = settings.prune.given_budget


def test_the_folder_of_a_model_is_relative_to_the_file_that_names_it(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    file = tmp_path / "project" / "catro.toml"
    file.write_text('[model]\nname = "transformers:resnet"\n')
    monkeypatch.chdir(tmp_path)
    settings = load_settings(file, {})
    assert settings.model.name == f"transformers:{tmp_path}/project/resnet"
    assert "checkpoint" not in settings.model.model_fields_set  # it follows from the folder
    given = load_settings(file, {"model": {"name": "transformers:other"}})
    assert given.model.name == f"transformers:{tmp_path}/other"


@pytest.mark.parametrize("recipe", ["auto", "gentle", "fast", "paper", "none"])
def test_settings_read_back_from_their_text_are_the_same(recipe):
    settings = load_settings(None, {"finetune": {"recipe": recipe}})
    again = settings_from_text(settings_text(settings))
    paths = {"model": {"checkpoint"}, "data": {"root"}}
    assert again.model_dump(exclude=paths) == settings.model_dump(exclude=paths)


def test_budgets_are_joined_from_a_list_and_from_limits_of_their_own(tmp_path):
    lines = 'budget = ["50%flops", "0.5x"]\nmax_size = "300 kB"\nmax_memory = "0.5x"\nmax_energy = "3mJ"'
    settings = load_settings(write(tmp_path, f"[prune]\n{lines}"), {})
    assert [(str(one), one.use) for one in settings.prune.budgets] == [
        ("0.5x", "latency"),
        ("50%flops", "MACs"),
        ("300kB", "size"),
        ("0.5x", "memory"),
        ("3mJ", "energy"),
    ]
    text = settings_text(settings)
    assert 'budget = "50%flops, 0.5x"' in text
    assert 'max_size = "300kB"' in text
    assert load_settings(write(tmp_path, text), {}).prune == settings.prune


def test_the_device_decides_where_a_budget_is_of_latency_or_of_energy():
    def is_timed(**pruning):
        return load_settings(None, {"prune": pruning}).prune.is_timed

    assert is_timed()
    assert is_timed(budget="auto")
    assert not is_timed(budget="50%flops", max_size="300kB")
    assert is_timed(budget="50%flops", max_energy="3mJ")


def test_a_searched_budget_stands_alone():
    with pytest.raises(BudgetError, match=r"(?s)\bauto\b.*--max-size"):
        load_settings(None, {"prune": {"budget": "auto, 900us@p99"}})
    assert load_settings(None, {"prune": {"budget": "auto", "max_size": "300kB"}}).prune.max_size is not None


@pytest.mark.parametrize(("text", "seconds"), [("120s", 120.0), ("2min", 120.0), ("0.5 s", 0.5)])
def test_a_soak_lasts_so_long(tmp_path, text, seconds):
    settings = load_settings(None, {"bench": {"soak": text}})
    assert settings.bench.soak == seconds
    assert load_settings(write(tmp_path, settings_text(settings)), {}).bench.soak == seconds


@pytest.mark.parametrize("text", ["120", "0s", "3days", "100000s"])
def test_a_soak_of_no_time_is_refused(text):
    with pytest.raises(SettingsError, match="120s or 5min"):
        load_settings(None, {"bench": {"soak": text}})


@pytest.mark.parametrize(("classes", "each"), [(2, 128), (64, 128), (65, 126), (1000, 8), (20000, 2)])
def test_of_many_classes_fewer_images_are_scored(classes, each):
    assert load_settings(None, {}).prune.samples_of_each(classes) == each  # 128, or a share of 8192
