"""The reference is generated from the settings and the commands."""

import re

import pytest

from catro_deploy.cli.flags import RUN
from catro_deploy.settings.catalog import settings_by_place
from tests.tiny import command
from tools.reference import FOLDER, PAGES, cli_page, settings_page


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_what_the_code_says(name):
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "settings or commands have changed: make reference"


def test_every_setting_has_a_row_in_its_section():
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", settings_page(), re.MULTILINE | re.DOTALL))
    rows = {
        f"{name}.{key}" for name, text in sections.items() for key in re.findall(r"^\| `(\w+)`", text, re.MULTILINE)
    }
    assert rows == set(settings_by_place())


def test_type_default_range_and_help_of_a_setting():
    facts = "| `samples_per_class` | integer | `128` | `x >= 2` |"
    assert f"{facts} Training images of each class that channels are scored on |" in settings_page().splitlines()


def test_every_command_of_the_help_has_a_section():
    sections = re.findall(r"^## catro-deploy (.+)$", cli_page(), re.MULTILINE)
    assert {"run", "import", "targets show", "device add", "runs compare"} <= set(sections)
    shown = {
        found[1] for line in command("--help").output.splitlines() if (found := re.match(r"[│|] ([a-z]+)  ", line))
    }
    assert shown
    assert shown <= set(sections)


def test_all_flags_of_run_are_listed_and_not_the_first_ones_alone():
    section = cli_page().split("## catro-deploy run\n")[1].split("\n## ")[0]
    assert {f"--{flag.name.replace('_', '-')}" for flag in RUN} <= set(re.findall(r"`(--[a-z-]+)`", section))


def test_arguments_say_that_they_are_required():
    assert "| `NAME` | text | Its name. Required. |" in cli_page()
