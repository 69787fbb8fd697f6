"""The size of the images if none is set."""

import pytest
from PIL import Image

from catro_deploy.errors import DataError, ModelError
from catro_deploy.settings import Settings
from catro_deploy.stages.original import open_original
from catro_deploy.stages.sizes import sized, with_size
from tests.tiny import CLASSES

OWN, LIBRARY = "tests.tiny:network", "torchvision:resnet18"


@pytest.fixture
def images(tmp_path):
    """Write images that cycle through these sizes (width, height), and make settings for them."""

    def write(*of, model=OWN, **data):
        for split in ("train", "test"):
            for name in CLASSES:
                folder = tmp_path / split / name
                folder.mkdir(parents=True)
                for number in range(4):
                    Image.new("RGB", of[number % len(of)]).save(folder / f"{number}.png")
        return Settings.model_validate(
            {"model": {"name": model}, "data": {"name": "imagefolder", "root": tmp_path} | data}
        )

    return write


@pytest.mark.parametrize("model", [OWN, "cifar_resnet20", LIBRARY, "timm:lcnet_035"])
def test_images_of_one_size_keep_it(images, model):
    assert sized(images((64, 64), model=model)) == (64, 64)


def test_a_size_that_is_given_counts(images):
    settings = images((64, 64), size=24)
    assert with_size(settings) is settings


@pytest.mark.parametrize("of", [[(80, 60), (90, 90)], [(80, 60)], [(600, 600)]])
@pytest.mark.parametrize(("model", "side"), [(LIBRARY, 224), ("timm:tf_efficientnet_b1", 240)])
def test_photographs_take_the_librarys_size(images, of, model, side):
    """Images of many sizes, oblong ones, and ones larger than the network was made for."""
    assert sized(images(*of, model=model)) == (side, side)


@pytest.mark.parametrize("model", [OWN, "cifar_resnet20"])
@pytest.mark.parametrize(
    ("of", "said"), [([(80, 60), (90, 90)], "of 2 sizes, 60 to 90 high and 80 to 90 wide"), ([(80, 60)], "are 60x80.")]
)
def test_an_own_network_on_photographs_needs_a_size(images, model, of, said):
    with pytest.raises(DataError) as error:
        with_size(images(*of, model=model))
    assert said in error.value.problem
    assert "size = 64" in error.value.hint


def test_of_an_unknown_model_the_name_is_what_is_wrong(images):
    with pytest.raises(ModelError, match="'resnet50'"):
        with_size(images((80, 60), model="resnet50"))


def test_missing_images_are_what_is_wrong(tmp_path):
    settings = Settings.model_validate({"model": {"name": OWN}, "data": {"name": "imagefolder", "root": tmp_path}})
    with pytest.raises(DataError, match="no train/"):
        with_size(settings)


@pytest.mark.parametrize("name", ["gtsrb", "signs"])
def test_known_datasets_have_their_size(tmp_path, name):
    """No images are needed for it: they may first have to be downloaded or generated."""
    assert sized(Settings.model_validate({"data": {"name": name, "root": tmp_path / "none"}})) == (32, 32)


def test_a_factory_of_images_does_not_say(images):
    data = {"name": "tests.tiny:dataset"}
    with pytest.raises(DataError, match=r"\[data\] size\b.*\btests\.tiny:dataset\b"):
        with_size(Settings.model_validate({"model": {"name": OWN}, "data": data}))
    assert sized(Settings.model_validate({"model": {"name": LIBRARY}, "data": data})) == (224, 224)


def test_the_original_takes_images_of_that_size(images, tmp_path):
    from catro_deploy.models import build_model
    from catro_deploy.models.checkpoint import save_weights

    save_weights(build_model(OWN, 3), tmp_path / "own.safetensors")
    settings = images((20, 20))
    model = settings.model.model_copy(update={"checkpoint": tmp_path / "own.safetensors"})
    assert open_original(settings.model_copy(update={"model": model})).input_shape == (3, 20, 20)
