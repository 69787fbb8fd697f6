import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from catro_deploy.calibration import load_latency_protocol
from catro_deploy.errors import MissedError, ModelError, RunFolderError, SettingsError, UsageError
from catro_deploy.files import file_hash
from catro_deploy.progress import Silent
from catro_deploy.records import Bench, Quantized
from catro_deploy.resources import find, names
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import save_plan
from catro_deploy.runs.records import load, save
from catro_deploy.settings import PruneSettings, Settings
from catro_deploy.settings.deploy import QuantizeSettings
from catro_deploy.stages import bench as stage
from catro_deploy.stages.bench import bench
from tests.onnx_files import write_conv_chain
from tests.report.made import make_bench, make_plan, make_quantize, make_timed_plan

SHORT = """
warmup_s = 0.05
seconds = 0.4
min_samples = 100
limit_s = 5.0
block = 10
bootstrap_resamples = 200
seed = 0
"""
LARGE, SMALL = {"layers": 8, "channels": 32, "size": 32}, {"layers": 1, "channels": 32, "size": 32}


@pytest.fixture
def protocol(tmp_path):
    path = tmp_path / "short.toml"
    path.write_text(SHORT)
    return path


def settings(protocol, **bench_settings) -> Settings:
    return Settings.model_validate({"bench": {"protocol": str(protocol)} | bench_settings})


def make_run(folder, original: dict, pruned: dict, budget: str = "50%flops") -> RunFolder:
    run = RunFolder(folder / "run")
    run.path.mkdir()
    save_plan(make_plan(budget=budget), run.plan)
    for path, size in ((run.original_onnx, original), (run.pruned_onnx, pruned)):
        write_conv_chain(path, metadata={"network": path.stem, "plan_sha256": file_hash(run.plan)}, **size)
    return run


def test_bench_json_holds_times_ratio_protocol_and_environment(tmp_path, protocol):
    run = make_run(tmp_path, LARGE, SMALL)
    content = bench(settings(protocol, threads=2), run, Silent())
    assert content == load(Bench, run)
    assert (content.further, content.trtexec) == ((), None)
    for times in (content.original, content.pruned):
        assert times.n == len(times.samples_us)
        assert times.p50_us <= times.p90_us <= times.p99_us
    low, high = content.speedup.ci95
    assert 1 < low <= content.speedup.median <= high
    assert content.protocol.warmup_s == 0.05
    environment = content.environment
    assert environment["models"]["pruned"] == {"file": "pruned.onnx", "sha256": file_hash(run.pruned_onnx)}
    assert (environment["target"], environment["threads"], environment["batch"]) == ("x86-cpu", 2, 1)
    assert (environment["precision"], environment["how"]) == ("fp32", "measured")
    assert environment["transfers"].startswith("none")
    asked = {"device", "cpu_model", "cores", "instruction_sets", "governor", "memory_bytes", "os", "kernel", "python"}
    asked |= {
        f"{fact}_{when}" for fact in ("clock_mhz", "temperatures_c", "load_average") for when in ("before", "after")
    }
    assert asked <= set(environment)


@pytest.fixture
def scripted(tmp_path, protocol, monkeypatch):
    """Run the stage with measurements whose original takes these microseconds; return the record, and their number.

    The widths were chosen when the original took 1.01 ms.
    """

    def measure(originals_us, carried=False, speedup=(2.1, 2.09, 2.11), **bench_settings):
        run = RunFolder(Path("run") if carried else tmp_path / "run")
        run.path.mkdir()
        save_plan(make_timed_plan(), run.plan)
        if carried:
            run.carried.touch()
        made = []

        def measured(*_):
            made.append(make_bench(*speedup, original_us=originals_us[len(made)]))
            return made[-1]

        monkeypatch.setattr(stage, "measured", measured)
        return bench(settings(protocol, **bench_settings), run, Silent()), len(made)

    return measure


@pytest.mark.parametrize(("originals_us", "fastest_us"), [([1200, 1020], 1020), ([1300, 1200, 1250], 1200)])
def test_measured_again_if_the_original_is_slower_than_when_the_widths_were_chosen(scripted, originals_us, fastest_us):
    record, made = scripted(originals_us)
    assert made == len(originals_us)
    assert record.original.p50_us == fastest_us
    assert record.warnings[-1].startswith(f"The machine was disturbed. Of {made} measurements")
    assert f"takes {fastest_us / 1010 - 1:.0%} longer" in record.warnings[-1]


def test_measured_again_while_the_speedup_is_uncertain(scripted):
    record, made = scripted([1000, 1000, 1000], speedup=(2.1, 1.9, 2.3))
    assert made == 3
    assert record.warnings[-1] == "The machine was disturbed. Of 3 measurements, the least disturbed counts."


@pytest.mark.parametrize(
    ("original_us", "more"),
    [(1020, {}), (3000, {}), (1200, {"soak": 60.0}), (1200, {"carried": True})],
    ids=["undisturbed", "other conditions", "soak", "carried"],
)
def test_measured_once(scripted, original_us, more, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record, made = scripted([original_us], **more)
    assert (made, record.original.p50_us) == (1, original_us)
    assert not any("disturbed" in warning for warning in record.warnings)


def test_a_slower_pruned_model_is_reported(tmp_path, protocol):
    run = make_run(tmp_path, SMALL, LARGE)
    with pytest.raises(MissedError, match="slower") as caught:
        bench(settings(protocol), run, Silent())
    assert caught.value.exit_code == 3
    assert load(Bench, run).speedup.ci95[1] < 1


def test_a_little_slower_is_not_rounded_to_as_fast(scripted):
    with pytest.raises(MissedError, match=r"slower: it runs at 0\.996 to 0\.998 times"):
        scripted([1010], speedup=(0.9971, 0.9962, 0.9981))


def test_a_missed_latency_budget_is_reported(tmp_path, protocol):
    run = make_run(tmp_path, LARGE, LARGE | {"layers": 5}, budget="0.3x")
    with pytest.raises(MissedError, match=r"\b0\.3x is not met.*: 0\.\d{3,}x measured\."):
        bench(settings(protocol).model_copy(update={"prune": PruneSettings(budget="0.3x")}), run, Silent())
    assert run.bench.is_file()


@pytest.mark.parametrize(
    ("kept", "recipe_keeps", "hint"),
    [
        (("fc", "stem"), [], "2 layers stay in floating point"),
        (("fc", "stem"), ["fc"], "1 layer stays in floating point"),
        (("fc",), ["fc"], "run --force"),
        ((), [], "run --force"),
        (None, [], "run --force"),
    ],
)
def test_layers_that_int8_could_not_have_are_why_a_budget_is_missed(tmp_path, protocol, kept, recipe_keeps, hint):
    run = make_run(tmp_path, LARGE, LARGE | {"layers": 5}, budget="0.3x")
    shutil.copyfile(run.pruned_onnx, run.onnx("pruned", "int8"))
    shipped = "fp32" if kept is None else "int8"  # None: int8, with layers in float, was too inaccurate on the device
    save(make_quantize(shipped=shipped, made={"int8": Quantized(kept=("fc",) if kept is None else kept)}), run)
    recipe = tmp_path / "mine.toml"
    standard = find("calibration/int8", "standard").read_text()
    recipe.write_text(standard.replace("keep = []", f"keep = {json.dumps(recipe_keeps)}"))
    in_int8 = {
        "prune": PruneSettings(budget="0.3x"),
        "quantize": QuantizeSettings(precision="int8", recipe=str(recipe)),
    }
    with pytest.raises(MissedError, match=r"\b0\.3x\b") as caught:
        bench(settings(protocol).model_copy(update=in_int8), run, Silent())
    assert hint in caught.value.hint
    assert (f"--recipe {run.calibration}" in caught.value.hint) == ("stay" in hint)


def test_too_few_samples_stand_among_the_warnings(tmp_path, protocol):
    protocol.write_text(
        SHORT.replace("min_samples = 100", "min_samples = 1000000").replace("limit_s = 5.0", "limit_s = 0.4")
    )
    content = bench(settings(protocol), make_run(tmp_path, LARGE, SMALL), Silent())
    assert any("of the 1000000 required" in warning for warning in content.warnings)


def test_a_batch_that_the_files_do_not_take_needs_another_export(tmp_path, protocol):
    run = make_run(tmp_path, SMALL, SMALL)
    with pytest.raises(UsageError, match=r"\b1\b.*\b8\b") as caught:
        bench(settings(protocol, batch=8), run, Silent())
    assert "export.dynamic_batch = true" in caught.value.hint
    assert not run.bench.exists()


def test_a_truncated_file_leaves_the_old_result_alone(tmp_path, protocol):
    run = make_run(tmp_path, LARGE, SMALL)
    run.bench.write_text("{}")
    run.pruned_onnx.write_bytes(run.pruned_onnx.read_bytes()[:500])
    with pytest.raises(ModelError, match=r"pruned\.onnx"):
        bench(settings(protocol), run, Silent())
    assert run.bench.read_text() == "{}"


def test_files_of_another_plan_are_refused(tmp_path, protocol):
    run = make_run(tmp_path, LARGE, SMALL)
    save_plan(make_plan(budget="40%flops"), run.plan)
    with pytest.raises(ModelError, match="plan_sha256"):
        bench(settings(protocol), run, Silent())


def test_missing_files_say_which_stage_makes_them(tmp_path, protocol):
    run = make_run(tmp_path, SMALL, SMALL)
    run.pruned_onnx.unlink()
    with pytest.raises(RunFolderError, match="catro-deploy export"):
        bench(settings(protocol), run, Silent())


def test_all_protocols_of_the_package_are_valid_and_longer_is_stricter():
    assert names("calibration/latency") == ("quick", "standard", "thorough")
    quick, standard, thorough = (load_latency_protocol(name) for name in ("quick", "standard", "thorough"))
    assert quick.seconds <= 5 < standard.seconds == 20 < thorough.seconds == 60
    assert quick.min_samples < standard.min_samples < thorough.min_samples


@pytest.mark.parametrize(
    ("change", "explanation"),
    [
        (("block = 10", "block = 0"), "block: "),
        (("block = 10", "block = 10\nblocks = 1"), "blocks: "),
        (("seconds = 0.4", "seconds = nan"), "seconds: "),
        (("min_samples = 100", "min_samples = 99"), r"\bmin_samples\b.*\b10 blocks\b.*\b100\b"),
        (("limit_s = 5.0", "limit_s = 0.1"), r"\blimit_s\b.*\b0\.1\b.*\bseconds\b"),
        (("seed = 0", "seed"), r"line \d+"),
    ],
)
def test_a_wrong_protocol_is_explained(protocol, change, explanation):
    protocol.write_text(SHORT.replace(*change))
    with pytest.raises(SettingsError, match=explanation) as caught:
        load_latency_protocol(str(protocol))
    assert str(find("calibration/latency", "standard")) in caught.value.hint


def test_an_unknown_protocol_gets_the_nearest():
    with pytest.raises(SettingsError, match=r"'standart'.*\bstandard\b"):
        load_latency_protocol("standart")


def test_the_stage_needs_no_torch():
    code = "import sys, catro_deploy.stages.bench; print({'torch', 'onnx', 'onnxruntime'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
