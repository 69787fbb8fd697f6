"""Flags are derived from the settings: their names, values, defaults and help texts."""

import re

import pytest
import typer

from catro_deploy.cli import flags
from catro_deploy.cli.main import app
from catro_deploy.files import write_text
from catro_deploy.settings import load_settings
from catro_deploy.settings.catalog import settings_by_place

TABLES = {name: value for name, value in vars(flags).items() if name in flags.__all__ and isinstance(value, tuple)}
EVERY = dict.fromkeys(flag for table in TABLES.values() for flag in table)
FOLDED = ("train", "profile", "prune", "finetune", "run")


def options_of(name):
    """The options of a command by their first name, as a call resolves them."""
    group = typer.main.get_command(app)
    _, command, _ = group.resolve_command(typer.Context(group), [name])
    return {option.opts[0]: option for option in command.params if option.param_type_name == "option"}


@pytest.mark.parametrize("flag", EVERY, ids=lambda flag: flag.name)
def test_every_flag_stands_for_settings(flag):
    assert set(flag.settings) <= set(settings_by_place())


@pytest.mark.parametrize("flag", flags.RUN, ids=lambda flag: flag.name)
def test_a_flag_says_what_its_setting_says(flag):
    setting = settings_by_place()[flag.settings[0]]
    option = options_of("run")[f"--{flag.name.replace('_', '-')}"]
    assert option.help.replace("\\[", "[").startswith(f"{setting.help}.")
    if isinstance(setting.default, int | float) and setting.type is not bool:
        assert f"default: {setting.default}" in option.help
    assert option.multiple == (setting.is_list or setting.repeatable)
    assert setting.limits in option.help


def test_a_bundle_compares_no_runtimes():
    assert "--runtimes" in options_of("bench")
    assert "--runtimes" not in options_of("bundle")


def test_no_command_has_a_flag_twice():
    for table in TABLES.values():
        names = [flag.name for flag in table]
        assert len(names) == len(set(names))


def test_the_help_of_run_shows_the_most_used_flags_with_defaults_and_names_the_way_to_the_rest(catro):
    shown = catro("run", "--help").stdout
    named = {flag.name for flag in flags.RUN if re.search(rf"--{flag.name.replace('_', '-')}\s", shown)}
    first = {
        "model",
        "checkpoint",
        "data",
        "data_root",
        "target",
        "classes",
        "budget",
        "epochs",
        "precision",
        "max_drop",
        "search",
    }
    assert named == first
    assert "[default: 0.5x]" in shown
    assert "--help-all" in shown
    assert "SECTION.KEY=VALUE" in shown


def test_paragraphs_of_a_help_fill_the_terminal(catro, monkeypatch):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 200)
    shown = catro("run", "--help").stdout
    (line,) = (line for line in shown.splitlines() if line.strip().startswith("--budget auto --max-drop"))
    assert "auto is the default if" in line  # the docstring has a line break here


@pytest.mark.parametrize("command", FOLDED)
def test_help_all_shows_every_flag(catro, command):
    shown = catro(command, "--help-all")
    assert shown.exit_code == 0
    assert not [name for name in options_of(command) if not re.search(rf"{name}\s", shown.stdout)]


@pytest.mark.parametrize("command", FOLDED)
def test_the_flags_that_help_shows_are_flags_of_the_command(command):
    hidden = [option.hidden for option in options_of(command).values()]
    assert any(hidden)
    assert hidden.count(False) <= 11 + len(("config", "run", "force", "keep", "json", "option", "help_all"))


def test_a_flag_that_help_does_not_show_works(catro):
    refused = catro("run", "--d-min", "0")
    assert "prune.d_min = 0 does not fit" in refused.stderr


@pytest.mark.parametrize("flag", ["--budget", "--target", "--classes", "--search-budgets"])
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_flag_is_not_the_default(catro, flag, value):
    refused = catro("run", flag, value)
    assert refused.exit_code == 2
    assert f"{flag} is empty." in refused.stderr


@pytest.mark.parametrize("flag", ["--run", "--config"])
def test_an_empty_path_is_not_the_current_folder(catro, folder, flag):
    refused = catro("prune", flag, "")
    assert refused.exit_code == 2
    assert "it is empty" in refused.stderr
    assert not (folder / "run.toml").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("prune.ridge=-3", "prune.ridge = -3 does not fit"),
        ("prune.rige=3", "prune.rige is not a setting. Did you mean ridge?"),
        ("prunes.ridge=3", "prunes is not a setting. Did you mean prune?"),
        ("prune.ridge", "prune.ridge is not of the form section.key=value"),
        ("prune.ridge=", "-o prune.ridge is empty."),
        ("prune.classes= ", "-o prune.classes is empty."),
        ("prune.d_min=3\nridge=0", "prune.d_min = '3\\nridge=0' does not fit"),
        ('prune.schedule="step"', "It belongs in [train] or [finetune]"),
    ],
)
def test_a_setting_without_a_flag_is_checked_like_any(catro, given, said):
    refused = catro("prune", "-o", given)
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_settings_without_a_flag_are_set(catro, folder):
    given = [
        "prune.ridge=0.5",
        "prune.classes=a,3",
        'prune.ignore=["conv1"]',
        "data.validation=.25",
        "bench.batches=[2, 4]",
    ]
    done = catro("prune", "--run", "here", *(word for one in given for word in ("-o", one)))
    assert done.exit_code == 0
    found = load_settings(folder / "here" / "run.toml", {})
    assert (found.prune.ridge, found.prune.classes, found.prune.ignore) == (0.5, ["a", "3"], ["conv1"])
    assert (found.data.validation, found.bench.batches) == (0.25, [2, 4])


def test_an_empty_text_in_quotes_is_a_value(catro, folder):
    write_text(
        folder / "catro.toml", (folder / "catro.toml").read_text() + '[prune]\ndevice = "away"\nclasses = ["3"]\n'
    )
    done = catro("prune", "--run", "here", "-o", 'prune.device=""', "-o", 'prune.classes=""')
    assert done.exit_code == 0, done.stderr
    found = load_settings(folder / "here" / "run.toml", {}).prune
    assert (found.device, found.classes) == ("", [])


@pytest.mark.parametrize(("given", "batches"), [("8", [8]), ("4,8", [4, 8]), ("[8]", [8])])
def test_one_value_of_a_list_needs_no_brackets(catro, folder, given, batches):
    assert catro("prune", "--run", "here", "-o", f"bench.batches={given}").exit_code == 0
    assert load_settings(folder / "here" / "run.toml", {}).bench.batches == batches
