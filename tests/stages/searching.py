"""Searches whose variants are neither screened, pruned nor trained: their divergence follows from a rule."""

from dataclasses import replace

import numpy as np
import torch

from catro_deploy.assessment.basis import Basis
from catro_deploy.data import MemorySplit
from catro_deploy.progress import Silent
from catro_deploy.records import Screened, TriedVariant
from catro_deploy.settings import load_settings
from catro_deploy.stages import halving as halving_module
from catro_deploy.stages import screening as screening_module
from catro_deploy.stages import variants as stage
from catro_deploy.stages.held_out import HeldOut
from catro_deploy.stages.ways import Available
from tests.report.made import slower_by

KNOBS = ("criterion", "worth", "depth", "precision")


def settings_of(minutes=15.0, knobs=KNOBS, epochs=4, take=0, budgets=(), max_drop=None, **pruning):
    return load_settings(
        None,
        {
            "prune": {"budget": "0.5x"} | pruning,
            "search": {
                "enabled": True,
                "minutes": minutes,
                "knobs": list(knobs),
                "take": take,
                "budgets": list(budgets),
            },
            "verify": {"max_drop": max_drop},
            "finetune": {"epochs": epochs},
        },
    )


def held_out_of(train_images=20_000):
    """Ten validation images, and an epoch of ``train_images``, in batches of 128 if there are thousands."""
    images = MemorySplit(torch.zeros(10, 3, 2, 2, dtype=torch.uint8), np.zeros(10, np.int64))
    train = MemorySplit(torch.zeros(train_images, 1, 1, 1, dtype=torch.uint8), np.zeros(train_images, np.int64))
    basis = Basis("accuracy", np.zeros(10, np.int64), 0.9)
    return HeldOut(train, images, np.zeros((10, 2), np.float32), basis)


def search_by_rule(run, monkeypatch):
    """Search variants whose divergence after each step is ``kl(changes, step)``; None: no network meets the budget.

    Variants with the same ``network(changes)`` are the same network; by default, all differ.

    ``screen(changes)`` is the divergence that screening finds, in ``screening_s`` seconds, without ``dropped(changes)``
    branches; without it, nothing is screened.

    The function returns what was found, and a diary of all steps in their order.
    """

    def search(
        kl,
        settings,
        seconds=60.0,
        train_images=20_000,
        network=sorted,
        screen=None,
        screening_s=1.0,
        dropped=lambda changes: 1,
    ):
        diary = []

        def ended(self, tried, step):
            budget = str(self._settings.prune.budget)
            diary.append((step, tried.name) if budget == "0.5x" else (step, tried.name, budget))
            found = kl(tried.changes if budget == "0.5x" else {**tried.changes, "prune.budget": budget}, step)
            ratio = float(budget.removesuffix("x")) - 0.01
            reached = {"speedup": slower_by(ratio, 0.01), "kl_nats": (*tried.kl_nats, found)} if found else {}
            reached |= {"agreement": 1 - found / 100, "validation_accuracy": 0.9 - found / 100} if found else {}
            return replace(tried, seconds=(*tried.seconds, seconds), **reached)

        one = halving_module.Halving

        def screened(changes, *given):
            diary.append(("screened", TriedVariant(dict(changes)).name))
            return Screened(dict(changes), screen(changes), screening_s, dropped(changes))

        monkeypatch.setattr(screening_module, "_screened", screened)
        monkeypatch.setattr(screening_module.Screening, "_measure", lambda self: None)
        if screen is None:
            monkeypatch.setattr(screening_module.Screening, "is_possible", False)

        def pruned(self, changes):
            return ended(self, TriedVariant(dict(changes), screened_nats=self._screening.kl_nats(changes)), 0)

        monkeypatch.setattr(one, "_pruned", pruned)
        monkeypatch.setattr(
            one, "_trained", lambda self, tried, training: ended(self, tried, 1 if "steps" in training else 2)
        )
        monkeypatch.setattr(one, "_folder", lambda self, changes: run)
        monkeypatch.setattr(one, "_network", lambda self, tried: network(tried.changes.items()))
        return stage._searched(settings, run, held_out_of(train_images), Silent(), Available()), diary

    return search
