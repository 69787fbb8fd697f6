"""Settings with the decisions of earlier stages of the run: the budget that was found, and the variant."""

from collections.abc import Callable, Mapping

from catro_deploy.errors import SettingsError
from catro_deploy.records import Budgets, Search, Variants
from catro_deploy.records.variants import BUDGET, INPUT_SIZE, TEMPERATURE
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load, load_if_there
from catro_deploy.settings import AUTO, Settings
from catro_deploy.settings.sides import size_of
from catro_deploy.stages.table import PRUNE, VARIANTS, Stage
from catro_deploy.targets import load_target
from catro_deploy.transports.reach import require_reachable

__all__ = ["as_decided", "changed", "require_best_taken", "require_comparable"]

PARSED: Mapping[str, Callable[[str], object]] = {BUDGET: Budgets.parse, INPUT_SIZE: size_of, TEMPERATURE: float}
"""Settings whose values are texts in records, and how to parse them."""


def as_decided(settings: Settings, stage: Stage, run: RunFolder) -> Settings:
    """``settings`` for ``stage``: with the budget found if it prunes, with the variant if it follows the choice.

    Raises:
        RunFolderError: no budget has been found yet.
        SettingsError: there is no variant with the requested number.
    """
    if stage.name in (VARIANTS, PRUNE) and settings.prune.budget == AUTO:
        found = {"budget": Budgets.parse(load(Search, run).budget)}
        settings = settings.model_copy(update={"prune": settings.prune.model_copy(update=found)})
    if settings.search.enabled and stage.follows_choice and (record := load_if_there(Variants, run)) is not None:
        return changed(settings, _taken(record, settings))
    return settings


def _taken(record: Variants, settings: Settings) -> Mapping[str, str]:
    """The changes of the variant that ``settings`` take: the best, or the one with the given number."""
    number = settings.search.take or 1
    if number > len(record.variants):
        raise SettingsError(
            f"There is no variant {number}: {len(record.variants)} were tried.",
            "The report lists them with their numbers. To take the best: leave --take out",
        )
    variant = record.variants[number - 1]
    if variant.speedup is None:
        raise SettingsError(
            f"No network of variant {number} ({variant.name}) meets the budget.",
            "Take another one: the report lists them with their numbers.",
        )
    return variant.changes


def require_best_taken(settings: Settings) -> None:
    """Check that ``settings`` take the best of the variants, which are not compared yet and have no numbers.

    Raises:
        SettingsError: they name another one.
    """
    if settings.search.enabled and settings.search.take > 1:
        raise SettingsError(
            f"There is no variant {settings.search.take} yet: the search has not run, and numbers its variants.",
            "Leave --take (or take in [search]) out; once the report lists the variants, the same command with --take "
            "continues with another one.",
        )


def require_comparable(settings: Settings) -> None:
    """Check that variants can be pruned to the budget by measurement.

    Raises:
        TargetError: the target cannot be measured from here.
        SettingsError: the budget is not measured.
    """
    require_reachable(load_target(settings.prune.target), settings.prune.device, "variants")
    if not settings.prune.is_timed:
        raise SettingsError(
            f"--search compares prunings of equal measured latency, but the budget is {settings.prune.budget}.",
            "Name a latency budget: --budget 0.5x",
        )


def changed(settings: Settings, changes: Mapping[str, str]) -> Settings:
    """``settings`` with ``changes``, which map ``section.key`` to a value."""
    for place, value in changes.items():
        section, key = place.split(".")
        parsed = PARSED[place](value) if place in PARSED else value
        part = getattr(settings, section).model_copy(update={key: parsed})
        settings = settings.model_copy(update={section: part})
    return settings
