"""The run folder: the names of its files, its lock, and which of its stages are done."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catro_deploy.errors import MissedError, RunFolderError
from catro_deploy.files import UNFINISHED, file_hash, text_hash
from catro_deploy.runs.holding import hold

if TYPE_CHECKING:
    from catro_deploy.records import StageRecord

__all__ = ["RunFolder"]

LOCK = ".lock"


@dataclass(frozen=True)
class RunFolder:
    """All files of one run. Each property is a path that may or may not exist yet."""

    path: Path

    @property
    def settings(self) -> Path:
        """The resolved settings, ``run.toml``."""
        return self.path / "run.toml"

    @property
    def stages(self) -> Path:
        """The stages that have finished, with their inputs and outputs."""
        return self.path / "stages.json"

    @property
    def plan(self) -> Path:
        """Kept channels, widths and reasons."""
        return self.path / "plan.json"

    @property
    def search(self) -> Path:
        """The budgets that were tried, and the one that was chosen."""
        return self.path / "search.json"

    @property
    def variants(self) -> Path:
        """The variants that were tried to meet the budget, and the best one."""
        return self.path / "variants.json"

    @property
    def searched(self) -> Path:
        """The folders of the budgets and variants that were tried; these are not run folders."""
        return self.path / "search"

    @property
    def point(self) -> Path:
        """The result of a trial, in the trial's folder."""
        return self.path / "point.json"

    @property
    def variant(self) -> Path:
        """The result of a variant, in the variant's folder."""
        return self.path / "variant.json"

    @property
    def screened(self) -> Path:
        """What screening found of a variant, in the variant's folder."""
        return self.path / "screened.json"

    @property
    def original_weights(self) -> Path:
        """The unpruned network's weights, its head reduced to the wanted classes."""
        return self.path / "original.safetensors"

    @property
    def pruned_weights(self) -> Path:
        """The pruned network's weights before fine-tuning."""
        return self.path / "pruned.safetensors"

    @property
    def weights(self) -> Path:
        """The pruned network's weights after fine-tuning."""
        return self.path / "weights.safetensors"

    @property
    def finetune_state(self) -> Path:
        """The state of an unfinished fine-tuning; removed when it is finished."""
        return self.path / "finetune.resume.safetensors"

    @property
    def finetune(self) -> Path:
        """Loss and accuracy per epoch."""
        return self.path / "finetune.json"

    @property
    def events(self) -> Path:
        """The folder of the TensorBoard event files of the fine-tuning."""
        return self.path / "tensorboard"

    @property
    def original_onnx(self) -> Path:
        """The unpruned network for the runtime."""
        return self.path / "original.onnx"

    @property
    def pruned_onnx(self) -> Path:
        """The pruned network for the runtime."""
        return self.path / "pruned.onnx"

    @property
    def verify(self) -> Path:
        """Accuracy of both networks, in PyTorch and in the runtime."""
        return self.path / "verify.json"

    @property
    def runtimes(self) -> Path:
        """The comparison of the same networks in several runtimes."""
        return self.path / "runtimes.json"

    def onnx(self, network: str, precision: str) -> Path:
        """The file of ``original`` or ``pruned`` in ``precision``: ``pruned.onnx`` in fp32, ``pruned.int8.onnx``."""
        return self.path / (f"{network}.onnx" if precision == "fp32" else f"{network}.{precision}.onnx")

    @property
    def quantize(self) -> Path:
        """Which precisions were tried, and the one that is served."""
        return self.path / "quantize.json"

    @property
    def calibration(self) -> Path:
        """The recipe that repeats the quantisation of this run."""
        return self.path / "calibration.toml"

    @property
    def qat_state(self) -> Path:
        """The state of an unfinished quantisation-aware fine-tuning; removed when it is finished."""
        return self.path / "qat.resume.safetensors"

    def engine(self, network: str) -> Path:
        """The TensorRT engine of ``original`` or ``pruned``, for the device that it was built on."""
        return self.path / f"{network}.engine"

    @property
    def shipped(self) -> Path:
        """The record of what to ship, ``ship/model.json``: the network's file next to it, its input and its outputs."""
        return self.path / "ship" / "model.json"

    @property
    def build(self) -> Path:
        """How and where the engines were built, and their layers after TensorRT's fusions."""
        return self.path / "build.json"

    @property
    def packed_images(self) -> Path:
        """The test images packed for the device, during verification."""
        return self.path / ".images.npy"

    @property
    def bundle(self) -> Path:
        """The archive to carry to a device that cannot be reached."""
        return self.path / "bundle.tar"

    @property
    def carried(self) -> Path:
        """The results that were carried back."""
        return self.path / "device-results.json"

    @property
    def bench(self) -> Path:
        """Latencies of both networks, and the environment."""
        return self.path / "bench.json"

    def report(self, suffix: str) -> Path:
        """The report as ``html``, ``md`` or ``json``."""
        return self.path / f"report.{suffix}"

    def require(self, path: Path, stage: str) -> Path:
        """Return ``path``, which ``stage`` writes, if it exists.

        Raises:
            RunFolderError: it does not exist; the hint names the stage.
        """
        if not path.is_file():
            raise RunFolderError(f"{path} does not exist.", f"Create it: catro-deploy {stage} --run {self.path}")
        return path

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for this process; the lock does not outlive the process.

        Unfinished files of an earlier process are removed. If the work fails in a new folder before anything but the
        settings is written, the folder is removed.

        Raises:
            RunFolderError: another process has locked it.
            StorageError: it cannot be written.
        """
        with hold(self.path / LOCK, f"in {self.path}", "choose another folder with --run"):
            for unfinished in (*self.path.glob(UNFINISHED), self.packed_images):
                unfinished.unlink(missing_ok=True)
            new = not self.settings.exists()
            try:
                yield
            except BaseException:
                if new:
                    self._discard_failed_start()
                raise

    def _discard_failed_start(self) -> None:
        files = {self.settings, self.path / LOCK}
        if files.issuperset(self.path.iterdir()):
            for file in files:
                file.unlink(missing_ok=True)
            self.path.rmdir()

    def last_change(self) -> float:
        """Time at which the settings were last written or a stage last finished, in seconds since the epoch."""
        files = (self.settings, self.stages)
        return max(file.stat().st_mtime for file in files if file.is_file())

    def finished(self) -> dict[str, str]:
        """The finished stages in order of completion, and their times; their files are not checked."""
        return {stage: record.finished for stage, record in self._stages().items()}

    def _stages(self) -> "dict[str, StageRecord]":
        from catro_deploy.records import Stages  # imported here and below so that --help stays fast
        from catro_deploy.records.files import read_record

        if not self.stages.is_file():
            return {}
        hint = f"Delete it and run all stages again: catro-deploy run --run {self.path}"
        return read_record(Stages, self.stages, hint).stages

    def is_intact(self, stage: str) -> bool:
        """Whether ``stage`` has finished and its outputs are unchanged."""
        record = self._stages().get(stage)
        if record is None:
            return False
        return all((self.path / n).is_file() and file_hash(self.path / n) == h for n, h in record.outputs.items())

    def is_done(self, stage: str, inputs: Mapping[str, Any]) -> bool:
        """Whether ``stage`` has finished with the same inputs and its outputs are unchanged."""
        return self.is_intact(stage) and self._stages()[stage].inputs == _digest(inputs)

    def missed(self, stage: str) -> list[MissedError]:
        """The requirements that the result of ``stage``, which is done, does not meet."""
        return [MissedError(missed.problem, missed.hint) for missed in self._stages()[stage].missed]

    def take_back(self, stages: Iterable[str]) -> None:
        """Mark ``stages`` as not done, because they or their inputs are about to be replaced."""
        records = self._stages()
        kept = {stage: record for stage, record in records.items() if stage not in set(stages)}
        if kept != records:
            self._write_stages(kept)

    def mark_done(
        self,
        stage: str,
        inputs: Mapping[str, Any],
        outputs: tuple[Path, ...],
        seconds: float,
        missed: Sequence[MissedError] = (),
    ) -> None:
        """Record that ``stage`` has finished, with hashes of its inputs and outputs and the requirements it missed."""
        from catro_deploy.records import Missed, StageRecord

        record = StageRecord(
            inputs=_digest(inputs),
            outputs={path.relative_to(self.path).as_posix(): file_hash(path) for path in outputs},
            seconds=round(seconds, 3),
            finished=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            missed=tuple(Missed(one.problem, one.hint) for one in missed),
        )
        self._write_stages(self._stages() | {stage: record})

    def _write_stages(self, stages: "dict[str, StageRecord]") -> None:
        from catro_deploy.records import Stages
        from catro_deploy.records.files import write_record

        write_record(Stages(stages), self.stages)


def _digest(inputs: Mapping[str, Any]) -> str:
    return text_hash(json.dumps(inputs, sort_keys=True, default=str))
