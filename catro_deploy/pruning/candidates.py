"""The networks of other widths whose latency and size are measured while widths are chosen."""

import copy
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.latency.candidate import CandidateFiles, Proto
from catro_deploy.latency.template import Template, Widths, template_of
from catro_deploy.pruning.cutting import Classifier, of_widths, removed_branches, without_branches
from catro_deploy.pruning.shared import Shared, Size, once
from catro_deploy.pruning.solvers import Problem

__all__ = ["Candidates"]


@dataclass(frozen=True)
class Candidates:
    """Makes the networks of ``problem``, which have arbitrary channels of ``original``; ``whole`` is its trace."""

    original: Classifier
    whole: Network
    problem: Problem
    shared: Shared

    @cached_property
    def given(self) -> nn.Module:
        """The original, which does not resize its images."""
        return copy.deepcopy(self.original.as_given).cpu()

    @cached_property
    def given_network(self) -> Network:
        """The trace of ``given``."""
        return once(self.shared.traces, None, lambda: trace(self.given, self.whole.input_shape))

    @cached_property
    def unpruned(self) -> nn.Module:
        """The original at its new input size."""
        return copy.deepcopy(self.original.model).cpu()

    @property
    def size(self) -> Size | None:
        """The new input size; None: the original's own."""
        return self.original.resized_to

    def module(self, widths: Widths) -> nn.Module:
        """The network with ``widths``."""
        return of_widths(self.unpruned, self.problem.network, self.problem.worths, widths)

    def to_time(self, widths: Widths, size: Size | None, files: CandidateFiles) -> nn.Module | Proto:
        """The network with ``widths`` at ``size``, the original's own (None) or the new one, for ``files``.

        It is cut from an export that all networks without the same branches share or, if that is not possible, a module
        that has to be exported.
        """
        model, network = (
            (self.unpruned, self.problem.network) if size == self.size else (self.given, self.given_network)
        )
        branches = removed_branches(self.problem.worths, widths)

        def make() -> Template | None:
            shallow, rest = without_branches(model, network, branches)
            return template_of(shallow, rest, files.opset, dynamic_batch=files.dynamic_batch)

        key = size, tuple(branch.name for branch in branches), files.opset, files.dynamic_batch
        if (template := once(self.shared.templates, key, make)) is not None:
            with suppress(ModelError):  # the shapes at these widths are not known, though those at others are
                return template.at(widths)
        return of_widths(model, network, self.problem.worths, widths)
