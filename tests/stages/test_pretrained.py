"""Settings that follow from pretrained weights, and settings that override them."""

from dataclasses import replace

import pytest

from catro_deploy.errors import ModelError
from catro_deploy.models.pretrained import pretrained
from catro_deploy.progress import Silent
from catro_deploy.settings import load_settings, settings_text
from catro_deploy.stages import pretrained as stage
from catro_deploy.stages.pretrained import published_accuracy, with_preprocessing, with_pretrained
from tests.models.huggingface import change_json, save_network
from tests.notes import Notes

NAME, WEIGHTS = "torchvision:efficientnet_b0", "IMAGENET1K_V1"


def settings_in(folder, model="", data=""):
    text = f'[model]\nname = "{NAME}"\nweights = "{WEIGHTS}"\n{model}\n[data]\n{data}\n'
    (folder / "catro.toml").write_text(text)
    return load_settings(folder / "catro.toml", {})


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """The file of the weights in the library's cache."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    file = pretrained(NAME, WEIGHTS).file
    file.parent.mkdir(parents=True)
    file.write_bytes(b"weights")
    return file


def test_all_that_is_left_open_follows(tmp_path, cached):
    settings = with_pretrained(settings_in(tmp_path), Silent())
    assert (settings.data.size, settings.data.resize, settings.data.interpolation) == ((224, 224), 256, "bicubic")
    assert settings.model.mean == (0.485, 0.456, 0.406)
    assert settings.model.classes == "imagenet1k"
    assert settings.model.checkpoint == cached
    assert published_accuracy(settings) == pytest.approx(0.77692)


def test_what_is_set_stays(tmp_path):
    model = 'checkpoint = "mine.pth"\nmean = [0.5, 0.5, 0.5]'
    settings = with_pretrained(settings_in(tmp_path, model, "size = 192\ninterpolation = 'bilinear'"), Silent())
    assert (settings.data.size, settings.data.resize, settings.data.interpolation) == ((192, 192), None, "bilinear")
    assert settings.model.mean == (0.5, 0.5, 0.5)
    assert settings.model.std == (0.229, 0.224, 0.225)
    assert settings.model.classes is None  # the user's weights may be of other classes
    assert settings.model.checkpoint == tmp_path / "mine.pth"
    assert published_accuracy(settings) is None


def test_nothing_is_downloaded_to_prepare_images(tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "fetch", None)
    assert with_preprocessing(settings_in(tmp_path)).data.resize == 256


def test_without_weights_settings_stay_as_they_are():
    settings = load_settings(None, {})
    assert with_pretrained(settings, Silent()) is settings
    assert published_accuracy(settings) is None


def test_a_download_is_announced(tmp_path, cached, monkeypatch, capsys):
    content = cached.read_bytes()
    cached.unlink()
    published = tmp_path / "published.pth"
    published.write_bytes(content)
    here = replace(pretrained(NAME, WEIGHTS), url=published.as_uri(), file=cached.with_name("network.pth"))
    monkeypatch.setattr(stage, "pretrained", lambda name, weights: here)
    notes = Notes()

    assert with_pretrained(settings_in(tmp_path), notes).model.checkpoint.read_bytes() == content
    assert notes.lines == [f"downloading {published.as_uri()}"]


class TestFolders:
    """The folder of a model ``transformers:FOLDER`` provides what weights provide for other models."""

    def settings(self, folder, model="", data=""):
        pytest.importorskip("transformers")
        save_network(folder / "net")
        (folder / "catro.toml").write_text(f'[model]\nname = "transformers:net"\n{model}\n[data]\n{data}\n')
        return load_settings(folder / "catro.toml", {})

    def test_all_that_is_left_open_follows(self, tmp_path):
        settings = with_pretrained(self.settings(tmp_path), Silent())
        assert settings.model.name == f"transformers:{tmp_path / 'net'}"
        assert settings.model.checkpoint == tmp_path / "net" / "model.safetensors"
        assert settings.model.classes == ["first", "second", "third"]
        assert settings.model.mean == pytest.approx((0.4, 0.5, 0.6))
        assert settings.model.std == pytest.approx((0.2, 0.3, 0.25))
        assert (settings.data.size, settings.data.resize, settings.data.interpolation) == ((32, 32), None, "bilinear")
        assert published_accuracy(settings) is None
        text = settings_text(settings)
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "run.toml").write_text(text)
        assert load_settings(tmp_path / "elsewhere" / "run.toml", {}).model == settings.model

    def test_what_is_set_stays(self, tmp_path):
        model = 'checkpoint = "mine.pth"\nstd = [0.5, 0.5, 0.5]'
        settings = with_pretrained(self.settings(tmp_path, model, "size = 24"), Silent())
        assert (settings.data.size, settings.data.resize) == ((24, 24), None)
        assert settings.model.std == (0.5, 0.5, 0.5)
        assert settings.model.classes is None  # the user's weights may be of other classes
        assert settings.model.checkpoint == tmp_path / "mine.pth"

    def test_names_that_say_nothing_are_left_to_the_data(self, tmp_path):
        settings = self.settings(tmp_path)
        change_json(tmp_path / "net" / "config.json", id2label={"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"})
        assert with_pretrained(settings, Silent()).model.classes is None

    def test_weights_are_those_of_the_folder(self, tmp_path):
        with pytest.raises(ModelError) as refused:
            with_pretrained(self.settings(tmp_path, 'weights = "DEFAULT"'), Silent())
        assert "Leave weights out" in refused.value.hint

    def test_exchanged_colours_are_noticed(self, tmp_path):
        settings = self.settings(tmp_path)
        size = {"height": 32, "width": 32}
        changes = {"resize_short": 32, "crop_size": size, "do_center_crop": True}
        change_json(
            tmp_path / "net" / "preprocessor_config.json", image_processor_type="PPLCNetImageProcessor", **changes
        )
        with pytest.raises(ModelError, match="more than"):
            with_pretrained(settings, Silent())
