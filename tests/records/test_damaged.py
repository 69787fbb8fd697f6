"""Records of a run folder and of a checkpoint, with each of their keys missing, of a wrong type, or out of range."""

import copy
import json

import pytest

from catro_deploy.cli.results import RESULTS
from catro_deploy.errors import RunFolderError, TargetError
from catro_deploy.files import write_text
from catro_deploy.progress import Silent
from catro_deploy.records import Missed, Mode, ModeTimes, StageRecord, Stages, Times, Trained, TriedPoint, Trtexec
from catro_deploy.records.files import content_of, read_record, write_record
from catro_deploy.records.sweep import CellRecord, StepTimes, SweepRecord
from catro_deploy.report.overview import overview
from catro_deploy.report.sweep import cells_table, sweep_page, sweep_words
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load, save
from catro_deploy.settings import load_settings
from catro_deploy.stages.report import report
from catro_deploy.sweep.sweeping import AGAIN
from tests.report.made import (
    make_agreement,
    make_bench,
    make_build,
    make_finetune,
    make_quantize,
    make_reconstruction,
    make_recovery,
    make_runtimes,
    make_samples,
    make_search,
    make_shipped,
    make_timed_plan,
    make_trained,
    make_variants,
    make_verify,
)
from tests.sweep.figures import FIGURES

TIMES = Times(2000.0, 2100.0, 2500.0, 2000.0, 0.0, 9)
SETTINGS = load_settings(
    None, {"prune": {"budget": "auto"}, "quantize": {"precision": "auto"}, "bench": {"runtimes": ["auto"]}}
)
STAGE = StageRecord("a", {"verify.json": "b"}, 1.0, "2026-11-23T10:00:00+0000", (Missed("Too low.", "Train."),))
STEPS = (StepTimes("prune", 1.0, 2.5, "here", None, 1), StepTimes("bench", 3.0, 4.5, "here", "box", 2))
CELL = CellRecord("one", "here", "all", "0.5x", "target", "one", "done", ("Too slow.",), STEPS, FIGURES)
RECORDS = {
    "plan": make_timed_plan("0.354x", reconstruction=make_reconstruction(2)),
    "verify": make_verify(
        recovery=make_recovery(), agreement_with_original=make_agreement(accuracy_change_ci95=(-1.0, 1.0))
    ),
    "bench": make_bench(
        original=make_samples([1000.0]),
        pruned=make_samples([500.0]),
        further=(ModeTimes(TIMES, TIMES, make_bench().speedup, Mode(4), ()),),
        trtexec=Trtexec("10.3.0", Mode(1), TIMES, TIMES),
    ),
    "finetune": make_finetune(1),
    "search": make_search(),
    "build": make_build(),
    "quantize": make_quantize(),
    "shipped": make_shipped(),
    "stages": Stages({"verify": STAGE}),
    "trained": make_trained(),
    "variants": make_variants(),
    "runtimes": make_runtimes(),
    "point": TriedPoint(0.5, make_bench().speedup, 0.9, 0.6, 0.95, 0.01, (-0.02, 0.01), 0.02),
    "sweep": SweepRecord((CELL,), 0.5),
}
WRONG = [None, "text", True, -1, 0, 1e308, [], {}, [None], {"a": None}]
"""Each replaces every value in turn; a file whose types are still valid must not break a reader."""
STAGE_OF = {"plan": "prune", "shipped": "ship"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with all records."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "run")
    for name, record in RECORDS.items():
        write_record(record, path_of(folder, name))
    write_text(folder.settings, "")
    return folder


def path_of(run, name):
    beside = {"trained": "baseline.json", "sweep": "sweep.json"}
    return run.path / beside[name] if name in beside else getattr(run, name)


def read(run, name):
    """The record ``name``, as the package reads it."""
    if name == "stages":
        return Stages({stage: run._stages()[stage] for stage in run.finished()})
    if name == "trained":
        return read_record(Trained, path_of(run, name), "Run again: catro-deploy train")
    if name == "sweep":
        return read_record(SweepRecord, path_of(run, name), AGAIN)
    return load(type(RECORDS[name]), run)


def keys(content, prefix=()):
    """The keys of all values below ``content``; of a list, of its first entry only."""
    entries = content.items() if isinstance(content, dict) else list(enumerate(content))[:1]
    for key, value in entries:
        yield (*prefix, key)
        if isinstance(value, dict | list):
            yield from keys(value, (*prefix, key))


def changed(content, key, change):
    """A copy of ``content`` with ``change`` applied to the container of ``key``."""
    found = copy.deepcopy(content)
    inner = found
    for part in key[:-1]:
        inner = inner[part]
    change(inner, key[-1])
    return found


def drop(container, key):
    del container[key]


def put(value):
    return lambda container, key: container.__setitem__(key, value)


def read_all(run, name):
    """Read the record ``name`` in every way: for the screen and for the report."""
    stage = STAGE_OF.get(name, name)
    if stage in RESULTS:
        shown = RESULTS[stage]
        shown.show(shown.read(run), run)
    if name in ("trained", "point"):
        read(run, name)
    if name == "sweep":
        sweep = read(run, name)
        assert sweep_words(sweep)
        assert cells_table(sweep)
        assert sweep_page(sweep, "sweep")
    if name == "stages" and "verify" in run.finished():
        assert run.missed("verify") is not None
        assert overview(run).name == "run"
        run.is_done("verify", {})
    report(SETTINGS, run, Silent())


@pytest.mark.parametrize("name", RECORDS)
def test_whatever_is_wrong_with_a_record_is_the_users_error(run, name):
    path = path_of(run, name)
    whole, content = path.read_bytes(), content_of(RECORDS[name])
    named = True
    try:
        for key in keys(content):
            for change in (drop, *map(put, WRONG)):
                path.write_text(json.dumps(changed(content, key, change)))
                try:
                    read_all(run, name)
                except TargetError:
                    assert key == ("target",)
                except RunFolderError as error:
                    named = named and path.name in error.problem
                except Exception as error:
                    raise AssertionError(f"{key}: {error!r}") from error
    finally:
        path.write_bytes(whole)
    assert named


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_named(run, name, number):
    path, content = path_of(run, name), content_of(RECORDS[name])
    whole = path.read_bytes()
    numbers = [key for key in keys(content) if _is_float(content, key)]
    assert numbers
    try:
        for key in numbers:
            text = json.dumps(changed(content, key, put("HERE"))).replace('"HERE"', number)
            path.write_text(text)
            with pytest.raises(RunFolderError) as caught:
                read(run, name)
            assert caught.value.problem == f"{path}: {'.'.join(map(str, key))} must be a finite number."
    finally:
        path.write_bytes(whole)


def _is_float(content, key):
    for part in key:
        content = content[part]
    return isinstance(content, float)


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("opening", ["[", '{"a": ', '{"format": 1, "environment": {"a": '])
def test_nesting_beyond_reason_is_refused(run, name, opening):
    path = path_of(run, name)
    whole = path.read_bytes()
    try:
        path.write_text(opening * 100_000)
        with pytest.raises(RunFolderError, match=f"{path.name} .*JSON") as caught:
            read(run, name)
        assert (AGAIN if name == "sweep" else "catro-deploy") in caught.value.hint
    finally:
        path.write_bytes(whole)


def test_an_error_names_file_key_and_what_is_allowed(tmp_path):
    path = tmp_path / "bench.json"
    content = content_of(RECORDS["bench"])
    for key, change, words in (
        (("original", "p50_us"), put("fast"), "original.p50_us: Input should be a valid number."),
        (("original", "p50_us"), drop, "original.p50_us: this key is required."),
        (("original", "p51_us"), put(1.0), "original.p51_us: there is no such key in this format."),
        (("speedup",), put(3), "speedup: must be an object."),
        (("original", "p50_us"), put(0.0), "original.p50_us: Input should be greater than 0."),
        (("format",), put(7), "format is 7; this version reads 1 only."),
        (("format",), drop, "format is 'none'; this version reads 1 only."),
    ):
        path.write_text(json.dumps(changed(content, key, change)))
        with pytest.raises(RunFolderError) as caught:
            read_record(type(RECORDS["bench"]), path, "Make it again.")
        assert caught.value.problem == f"{path}: {words}"


def test_what_could_not_be_read_is_not_written(tmp_path):
    folder = RunFolder(tmp_path)
    for record in (make_finetune(seconds=float("nan")), make_verify(test_images="many"), make_shipped(classes=3)):
        with pytest.raises(ValueError):  # noqa: PT011 - pydantic's own message
            save(record, folder)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_reads_as_it_was_written(run, name):
    assert read(run, name) == RECORDS[name]


def test_stages_keep_their_order(tmp_path):
    one = StageRecord("", {}, 1.0, "2026-11-23T10:00:00+0000", ())
    (tmp_path / "stages.json").write_text(json.dumps(content_of(Stages({"verify": one, "bench": one, "a": one}))))
    assert list(RunFolder(tmp_path).finished()) == ["verify", "bench", "a"]
