"""The keywords of the Python API are generated from the settings."""

import pytest

from catro_deploy.api import FinetuneOptions, PruneOptions
from catro_deploy.settings import FinetuneSettings, PruneSettings
from tools.api_options import FILE, source


def test_the_file_is_what_the_settings_say():
    assert FILE.read_text(encoding="utf-8") == source(), "the settings have changed: make reference"


@pytest.mark.parametrize(
    ("options", "settings", "elsewhere"),
    [
        (PruneOptions, PruneSettings, {"target", "classes", "budget"}),
        (
            FinetuneOptions,
            FinetuneSettings,
            {
                *("batch_size", "augment", "crop_scale", "randaugment", "saturation", "erase"),
                *("checkpoint_minutes", "tensorboard"),
            },
        ),
    ],
)
def test_every_setting_is_a_keyword_or_has_another_place(options, settings, elsewhere):
    assert set(options.__annotations__) == set(settings.model_fields) - elsewhere


def test_help_default_and_limits_are_in_the_docstring():
    assert (
        "    samples_per_class: Training images of each class that channels are scored on; x >= 2; default: 128."
        in (PruneOptions.__doc__ or "")
    )
