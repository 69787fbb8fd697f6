"""docs/results.md, generated from the results of other benchmarks.

    python -m benchmarks.results_page

Nothing is measured here. Each table follows the command that produced it, with processor and date.
"""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from benchmarks import results_texts as texts
from benchmarks.accuracy import criteria, equal_latency, search, two_targets
from benchmarks.accuracy.equal_latency_tables import machine_tables
from benchmarks.architectures import peer_tests
from benchmarks.architectures.peer_tests_tables import peer_tables
from benchmarks.common import DOCS, read_result, table
from benchmarks.latency import cost_model, input_size, second_opinion, turns
from benchmarks.precision import int8, openvino_int8
from benchmarks.precision.openvino_int8_tables import machine_tables as openvino_tables
from benchmarks.product import on_gpu, prune_whole
from catro_deploy.files import write_text

PAGE = DOCS / "results.md"


def latency_section() -> list[str]:
    """A table for each machine."""
    machines, names = equal_latency.read_machines(), equal_latency.NAMES
    return [
        texts.LATENCY,
        _command("benchmarks.accuracy.equal_latency --data FOLDER --checkpoint gtsrb_resnet20.pth --max-drop 0.5"),
        *(
            f"{_measured(name, found)}\n\n{_without_first_line(machine_tables(name, found['rows'], names))}"
            for name, found in machines.items()
        ),
    ]


def criteria_section() -> list[str]:
    """One table."""
    found = read_result(criteria.RESULT)
    return [
        texts.CRITERIA,
        _command("benchmarks.accuracy.criteria --cifar10 FOLDER --gtsrb FOLDER --weights FOLDER"),
        _measured(found["environment"]["processor"], found),
        criteria.results_table(found["rows"].values()),
    ]


def search_section() -> list[str]:
    """One table; all rows on one machine."""
    rows: Mapping[str, Any] = read_result(search.RESULT)["rows"]
    measured = {_measured(row["environment"]["processor"], row) for row in rows.values()}
    flags = "--cifar10 FOLDER --gtsrb FOLDER --photographs FOLDER --weights FOLDER --cases CASE"
    command = _command(f"benchmarks.accuracy.search {flags}")
    return [texts.SEARCH, command, "\n".join(sorted(measured)), search.results_table(rows)]


def two_targets_section() -> list[str]:
    """One table, if it has been measured."""
    rows: Mapping[str, Any] = read_result(two_targets.RESULT).get("rows", {})
    if not rows:
        return []
    measured = {_measured(row["environment"]["processor"], row) for row in rows.values()}
    command = _command("benchmarks.accuracy.two_targets --gtsrb FOLDER --weights FOLDER --cases resnet20-gtsrb")
    return [texts.TWO_TARGETS, command, "\n".join(sorted(measured)), two_targets.results_table(rows)]


def precision_section() -> list[str]:
    """A table for each machine."""
    machines: Mapping[str, Any] = read_result(int8.RESULT)["machines"]
    return [
        texts.PRECISION,
        _command("benchmarks.precision.int8 --gtsrb FOLDER --cifar10 FOLDER --weights FOLDER"),
        *(
            f"{_measured(name, found)}\n\n" + table(int8.HEADS, [int8.cells(row) for row in found["rows"].values()])
            for name, found in machines.items()
        ),
    ]


def openvino_section() -> list[str]:
    """Two tables for each machine, if any has measured them."""
    machines: Mapping[str, Any] = read_result(openvino_int8.RESULT).get("machines", {})
    if not machines:
        return []
    return [
        texts.OPENVINO,
        _command("benchmarks.precision.openvino_int8 --gtsrb FOLDER --cifar10 FOLDER --weights FOLDER --nncf PYTHON"),
        *("\n\n".join([_measured(name, found), *openvino_tables(found["rows"])]) for name, found in machines.items()),
    ]


def cost_model_section() -> list[str]:
    """A table for each runtime that was measured; each network has its machine."""
    parts = [texts.COST_MODEL]
    for runtime, (_, title) in cost_model.TARGETS.items():
        networks: Mapping[str, Any] = read_result(f"{title}.json").get("networks", {})
        if networks:
            measured = {_measured(found["environment"]["processor"], found) for found in networks.values()}
            parts += [
                f"With {networks_runtime(networks)}:",
                f"![Predicted against measured latency of random prunings]({title}.svg)",
                _command(f"benchmarks.latency.cost_model --runtime {runtime}"),
                "\n".join(sorted(measured)),
                cost_model.results_table(dict(networks)),
            ]
    return parts


def networks_section(text: str, benchmark: ModuleType) -> list[str]:
    """The table of a ``benchmark`` of networks, if it has been run."""
    networks: dict[str, Any] = read_result(benchmark.RESULT).get("networks", {})
    head = _head(text, benchmark.__name__, networks)
    return [*head, benchmark.results_table(networks)] if networks else []


def networks_runtime(networks: Mapping[str, Any]) -> str:
    """The runtimes, with their versions, in which the networks were measured."""
    return " and ".join(sorted({str(found["device"]["runtime"]) for found in networks.values()}))


def pruning_section() -> list[str]:
    """One table; all networks on one machine."""
    rows: Mapping[str, Any] = read_result(prune_whole.RESULT)["rows"]
    command = "benchmarks.product.prune_whole --cifar10 FOLDER --photographs FOLDER --weights FOLDER"
    return [*_head(texts.PRUNING, command, rows), prune_whole.results_table(rows)]


def peer_tests_section() -> list[str]:
    """The number of passes, and tables."""
    found = read_result(peer_tests.RESULT)
    known = found["environment"]
    versions = ", ".join(f"{name} {known[name]}" for name in peer_tests.PACKAGES)
    return [
        texts.PEER_TESTS,
        _command("benchmarks.architectures.peer_tests"),
        f"{_measured(known['processor'], found)}, {versions}",
        *peer_tables(found["rows"]),
    ]


def gpu_section() -> list[str]:
    """The output of each command of a run on a GPU, except for doctor."""
    rows: Mapping[str, Any] = read_result(on_gpu.RESULT)["rows"]
    parts = [texts.ON_GPU]
    for name, found in rows.items():
        known = found["environment"]
        said = [
            f"$ catro-deploy {' '.join(command['arguments'])}\n{command['output'].strip()}\n# {_ended(command)}"
            for command in found["commands"]
            if command["arguments"] != ["doctor"]
        ]
        parts += [
            f"{name}: {known['gpu']}, {known['processor']}, {known['cores']} cores, PyTorch {known['torch']}, "
            f"{known['date']}",
            _command(found["command"]),
            "```console\n" + "\n".join(said) + "\n```",
        ]
    return parts


def _ended(command: Mapping[str, Any]) -> str:
    how = "stopped by the time limit" if command["exit"] is None else f"exit code {command['exit']}"
    return f"{how}, {command['seconds']:.0f} s"


SECTIONS: tuple[Callable[[], list[str]], ...] = (
    latency_section,
    criteria_section,
    search_section,
    two_targets_section,
    precision_section,
    openvino_section,
    cost_model_section,
    partial(networks_section, texts.INPUT_SIZE, input_size),
    partial(networks_section, texts.SECOND_OPINION, second_opinion),
    partial(networks_section, texts.TURNS, turns),
    pruning_section,
    peer_tests_section,
    gpu_section,
)


def page() -> str:
    """The whole page, as Markdown."""
    return "\n\n".join([texts.HEAD, *(part for section in SECTIONS for part in section()), texts.SCRIPTS]) + "\n"


def _head(text: str, command: str, rows: Mapping[str, Any]) -> list[str]:
    measured = {_measured(row["environment"]["processor"], row) for row in rows.values()}
    return [text, _command(command), "\n".join(sorted(measured))]


def _command(line: str) -> str:
    return f"```sh\npython -m {line}\n```"


def _measured(processor: str, found: Mapping[str, Any]) -> str:
    known = found["environment"]
    return f"{processor}, {known['cores']} cores, PyTorch {known['torch']}, {known['date']}"


def _without_first_line(text: str) -> str:
    return text.partition("\n\n")[2]


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    write_text(PAGE, page())
