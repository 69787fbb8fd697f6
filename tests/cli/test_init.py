import tomllib

import pytest

from catro_deploy.cli.init import every_key
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.settings import Settings, TrainSettings, follow_recipe, load_settings
from tests.tiny import TinyNet, write_images


def test_init_writes_settings_that_load(catro, folder):
    (folder / "catro.toml").unlink()
    assert catro("init").exit_code == 0
    settings = load_settings(folder / "catro.toml", {})
    assert settings.data.name == "imagefolder"
    assert settings.train is None
    assert settings.model.checkpoint == folder / "model.pth"


def test_the_demo_can_train_and_run(catro, folder):
    assert catro("init", "--demo", "--force").exit_code == 0
    settings = load_settings(folder / "catro.toml", {})
    assert settings.data.name == "signs"
    assert settings.train is not None


def test_the_demos_network_does_not_learn_from_an_original_of_few_epochs(catro, folder):
    """With the recipe's distillation it kept the original's errors; trained on labels alone it surpassed it."""
    assert catro("init", "--demo", "--force").exit_code == 0
    settings = load_settings(folder / "catro.toml", {})
    assert follow_recipe(settings.finetune, reconstructed=True).distill == 0
    assert follow_recipe(Settings().finetune, reconstructed=True).distill == 0.9


def test_an_existing_file_stays(catro, folder):
    before = (folder / "catro.toml").read_text()
    result = catro("init", "--demo")
    assert result.exit_code == 2
    assert "--force" in result.stderr
    assert (folder / "catro.toml").read_text() == before


def test_print_shows_every_key_and_writes_nothing(catro, folder):
    (folder / "catro.toml").unlink()
    result = catro("init", "--print")
    assert result.exit_code == 0
    assert not (folder / "catro.toml").exists()
    assert Settings.model_validate(tomllib.loads(result.stdout)) == Settings()


@pytest.mark.parametrize("section", list(Settings.model_fields))
def test_no_key_is_left_out(section):
    lines = list(every_key())
    start = next(i for i, line in enumerate(lines) if line.removeprefix("# ") == f"[{section}]")
    block = "\n".join(lines[start : ([*lines[start:], ""]).index("") + start])
    model = TrainSettings if section == "train" else type(getattr(Settings(), section))
    assert all(f"{key} =" in block for key in model.model_fields)


def test_the_commented_training_section_holds_the_defaults():
    lines = "\n".join(every_key()).split("# [train]\n")[1].split("\n\n")[0]
    given = [line.removeprefix("# ") for line in lines.splitlines() if not line.split("=")[1].lstrip().startswith("#")]
    content = tomllib.loads("\n".join(given))
    assert TrainSettings.model_validate(content) == TrainSettings()


def test_the_template_says_where_the_size_comes_from(catro, folder):
    (folder / "catro.toml").unlink()
    catro("init")
    text = (folder / "catro.toml").read_text()
    assert load_settings(folder / "catro.toml", {}).data.size is None
    assert "# size = 64 " in text
    assert load_settings_with_size(folder, text) == (64, 64)


def load_settings_with_size(folder, text):
    file = folder / "sized.toml"
    file.write_text(text.replace("# size = 64", "size = 64"))
    return load_settings(file, {}).data.size


def test_a_network_and_images_are_looked_at(catro, folder):
    (folder / "catro.toml").unlink()
    save_weights(TinyNet(3), folder / "tiny.safetensors")
    write_images(folder / "data")
    result = catro("init", "--model", "tests.tiny:network", "--checkpoint", "tiny.safetensors", "--data-root", "data")
    assert result.exit_code == 0, result.stderr
    assert "It assumes:" in result.stdout
    settings = load_settings(folder / "catro.toml", {})
    assert (settings.model.name, settings.data.name) == ("tests.tiny:network", "imagefolder")
    assert settings.model.checkpoint == folder / "tiny.safetensors"
    assert settings.data.root == folder / "data"
    assert settings.finetune.augment == "objects"
    assert "mirrored left to right" in result.stdout


def test_a_network_without_images_is_not_enough(catro, folder):
    (folder / "catro.toml").unlink()
    result = catro("init", "--model", "torchvision:resnet18")
    assert result.exit_code == 2
    assert "--data-root" in result.stderr
    assert not (folder / "catro.toml").exists()
