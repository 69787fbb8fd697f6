"""The engine for several machines: Ray decides which of them runs a step, by the resources that the step requests.

A step requests cores, and a GPU if it trains; one that measures requests the resource ``device:NAME``, of which the
cluster has exactly one: the machine that offers it reaches the device by ssh, or is the device. Run folders are in a
folder that all machines share; if they share none, run folders are transferred there and back through Ray's object
store.
"""

import logging
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from catro_deploy.errors import DataError, FaultError, RuntimeMissingError, SettingsError
from catro_deploy.files import write_text
from catro_deploy.sweep.carrying import (
    FOLDER,
    STATE,
    Luggage,
    follow_carried,
    packed_config,
    packed_named,
    packed_run,
    take_back,
)
from catro_deploy.sweep.cells import Cell
from catro_deploy.sweep.engine import LOST, Job
from catro_deploy.sweep.orders import Event, Order, running
from catro_deploy.sweep.steps import STEPS, Needs, needs_of
from catro_deploy.units import counted

__all__ = ["RayEngine", "ray_engine", "resource_of"]

CPUS = 4
PATIENCE_S = 120.0
"""How long a step waits for a folder that a process on a lost machine still holds: file servers notice it late."""
LOOKING_S = 120.0
DRAWN = ("signs",)
FULL = {
    "problem": "Ray stopped this step because the memory of its machine was nearly full",
    "hint": "Run fewer cells side by side: set --cpus to more cores for each.",
}
LAST = ("end", "error", "killed")
START = "ray start --address=HEAD:6379 --resources='{\"%s\": 1}'"
Node = dict[str, Any]


def resource_of(device: str) -> str:
    """The custom resource that a step holds while it measures on ``device``."""
    return f"device:{device}"


def ray_engine(
    cells: Sequence[Cell], address: str, cpus: int | None, gpus: float | None, carry: bool | None = None
) -> "RayEngine":
    """An engine for ``cells`` on the Ray cluster at ``address``.

    ``carry``: whether run folders are transferred to the machines and back; None: only if they do not share them.

    Raises:
        RuntimeMissingError: Ray is not installed.
        FaultError: there is no such cluster.
        SettingsError: it does not offer a device exactly once, or no machine in it has enough cores or GPUs.
        DataError: a machine has no images.
    """
    ray = _connected(address)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    wanted = [needs_of(step, cell.settings) for cell in cells for step in STEPS]
    on = {needs.device: _node_of(needs.device, nodes) for needs in wanted if needs.device is not None}
    most_cpus = max(_amount(node, "CPU") for node in nodes)
    most_gpus = max(_amount(node, "GPU") for node in nodes)
    each = cpus or int(max(1, min(CPUS, most_cpus)))
    each_gpus = (1.0 if gpus is None else gpus) if most_gpus and any(needs.gpu for needs in wanted) else 0.0
    if each > most_cpus or each_gpus > most_gpus:
        raise SettingsError(
            f"A cell asks for {counted(each, 'core')} and {each_gpus:g} GPUs, but the largest machine of the cluster "
            f"has {most_cpus:g} and {most_gpus:g}.",
            "Ask for less: --cpus, --gpus.",
        )
    found = _looked_at(ray, nodes, cells)
    _require_images(found, cells)
    carries = carry if carry is not None else not all(one["shares"] for one in found)
    return RayEngine(ray, each, each_gpus, on, _Brought(ray, cells) if carries else None)


def _connected(address: str) -> Any:  # noqa: ANN401 - the module ray, which has few annotations
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # before the import: no usage statistics are sent
    try:
        import ray
    except ModuleNotFoundError:
        raise RuntimeMissingError(
            "Ray is not installed.", "python3 -m pip install 'catro-deploy[ray]', on each machine of the cluster."
        ) from None
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, namespace="catro-deploy")
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = (str(error).strip().splitlines() or ["no reason was given"])[0]
        raise FaultError(
            f"The Ray cluster {address} cannot be reached: {reason}",
            "Start one: ray start --head, see docs/sweep.md; or name its address: --address HEAD:6379",
        ) from None
    return ray


def _amount(node: Node, resource: str) -> float:
    return float(node["Resources"].get(resource, 0.0))


def _node_of(device: str, nodes: Sequence[Node]) -> Node:
    """The one node that offers ``device``.

    Raises:
        SettingsError: none does, or several do.
    """
    name = resource_of(device)
    offering = [node for node in nodes if _amount(node, name)]
    total = sum(_amount(node, name) for node in offering)
    if not offering:
        raise SettingsError(
            f"No machine of the Ray cluster offers {name}, so nothing can be measured there.",
            f"Start one that reaches the device by ssh, or that is the device, with: {START % name}",
        )
    if total != 1:
        raise SettingsError(
            f"The Ray cluster offers {name} {total:g} times, on {counted(len(offering), 'machine')}: cells would "
            "measure on it at the same time.",
            f"Offer it once: {START % name}",
        )
    return offering[0]


def look(token: Path, text: str, checkpoint: Path, root: Path) -> dict[str, Any]:
    """What a machine has of a sweep: whether it shares the driver's folder and checkpoint, and has images."""
    shares = token.is_file() and token.read_text(encoding="utf-8") == text and checkpoint.is_file()
    return {"where": socket.gethostname(), "shares": shares, "images": root.is_dir()}


def _looked_at(ray: Any, nodes: Sequence[Node], cells: Sequence[Cell]) -> list[dict[str, Any]]:  # noqa: ANN401
    """The results of ``look`` on each machine.

    Raises:
        FaultError: a machine has no catro-deploy, or another version.
    """
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    settings, folder = cells[0].settings, cells[0].run.path.parent.absolute()
    token, text = folder / ".shared", secrets.token_hex(8)
    write_text(token, text)
    task = ray.remote(look)
    try:
        refs = [
            task.options(
                num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
            ).remote(token, text, settings.model.checkpoint.absolute(), settings.data.root.absolute())
            for node in nodes
        ]
        found: list[dict[str, Any]] = ray.get(refs, timeout=LOOKING_S)
    except RayError as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise FaultError(
            f"A machine of the Ray cluster cannot run steps of catro-deploy: {reason}",
            "Install the same version on each: python3 -m pip install 'catro-deploy[ray]'",
        ) from None
    finally:
        token.unlink(missing_ok=True)
    return found


def _require_images(found: Sequence[dict[str, Any]], cells: Sequence[Cell]) -> None:
    """Check that all machines have the images, if these are files.

    Raises:
        DataError: a machine does not have them.
    """
    data = cells[0].settings.data
    without = [one["where"] for one in found if not one["images"]]
    if without and data.name not in DRAWN and ":" not in data.name:
        raise DataError(
            f"There are no images in {data.root.absolute()} on {', '.join(dict.fromkeys(without))}.",
            "Images are not transferred: put them at the same path on each machine of the cluster.",
        )


class _Brought:
    """What is sent with the steps of a sweep if machines share no folder."""

    def __init__(self, ray: Any, cells: Sequence[Cell]) -> None:  # noqa: ANN401 - as above
        path = cells[0].settings.model.checkpoint
        self.checkpoint = ray.put(path.read_bytes())
        self._name, self._config = path.name, packed_config()

    def luggage(self, job: Job) -> Luggage:
        """What is sent with ``job``, with its folder as it is now."""
        return Luggage(packed_run(job.cell.run), self._config, packed_named(job.cell.settings), self._name)


def follow(order: Order, environment: dict[str, str]) -> Iterator[Event]:
    """Run a step on the machine that Ray has chosen, and yield its events; it is stopped when Ray stops this task."""
    with running(order, environment, threading.Event()) as events:
        yield from events


class RayEngine:
    """Runs steps on ``cpus`` cores each and, if they train, ``gpus`` GPUs; ``on`` are the nodes that offer devices.

    ``brought`` is what is sent with steps; None if all machines share the run folders.
    """

    def __init__(self, ray: Any, cpus: int, gpus: float, on: dict[str, Node], brought: _Brought | None) -> None:  # noqa: ANN401 - as above
        self._ray, self._cpus, self._gpus, self._on, self._brought = ray, cpus, gpus, on, brought
        self._events: queue.Queue[tuple[Job, Event]] = queue.Queue()
        self._running: dict[Job, Any] = {}

    def fits(self, job: Job) -> bool:
        """Always true: Ray queues jobs that do not fit yet."""
        return True

    def start(self, job: Job) -> None:
        """Submit ``job`` to Ray."""
        threads = os.environ.get("OMP_NUM_THREADS", str(self._cpus))
        options = {"num_returns": "streaming", "max_retries": 0} | self._asked(job.needs)
        order, environment = replace(job.order, patience_s=PATIENCE_S), {"OMP_NUM_THREADS": threads}
        if self._brought is None:
            refs = self._ray.remote(follow).options(**options).remote(order, environment)
        else:
            task = self._ray.remote(follow_carried).options(**options)
            refs = task.remote(order, environment, self._brought.luggage(job), self._brought.checkpoint)
        self._running[job] = refs
        threading.Thread(target=self._listen, args=(job, refs), daemon=True).start()

    def _asked(self, needs: Needs) -> dict[str, Any]:
        """The resources that a step requests.

        A step that measures its own machine requests all cores and GPUs there, so that nothing else computes on it.
        """
        asked: dict[str, Any] = {"num_cpus": self._cpus, "num_gpus": self._gpus if needs.gpu else 0}
        if needs.device is None:
            return asked
        node = self._on[needs.device]
        cpus = _amount(node, "CPU")
        asked["num_cpus"] = cpus if needs.here else min(self._cpus, cpus)
        if needs.here:
            asked["num_gpus"] = _amount(node, "GPU")
        return asked | {"resources": {resource_of(needs.device): 1}}

    def next(self) -> tuple[Job, Event]:
        """Wait for the next event of a job."""
        job, event = self._events.get()
        if event["event"] in (*LAST, LOST):
            self._running.pop(job, None)
        return job, event

    def stop(self) -> None:
        """Stop all steps, and leave the cluster."""
        for refs in self._running.values():
            with suppress(Exception):
                self._ray.cancel(refs, force=True)
        self._ray.shutdown()

    def _listen(self, job: Job, refs: Any) -> None:  # noqa: ANN401 - an ObjectRefGenerator
        from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

        try:
            for ref in refs:
                event: Event = self._ray.get(ref)
                if event["event"] in (FOLDER, STATE):
                    take_back(event, job.cell.run, job.cell.text)
                    continue
                self._events.put((job, event))
                if event["event"] in LAST:
                    return
            reason = "it ended without a result"
        except RayTaskError as error:
            problem = f"The step could not be started: {str(error).strip().splitlines()[-1]}"
            content = {"kind": "FaultError", "problem": problem, "hint": "Is catro-deploy installed on each machine?"}
            self._events.put((job, {"event": "error", "time": time.time(), **content}))
            return
        except OutOfMemoryError:
            self._events.put((job, {"event": LOST, "time": time.time(), **FULL}))
            return
        except RayError as error:
            reason = type(error).__name__
        except Exception as error:  # the driver is leaving the cluster
            reason = f"{type(error).__name__}: {error}"
        lost = {"event": LOST, "time": time.time(), "problem": f"The machine of this step was lost ({reason})"}
        self._events.put((job, lost))
