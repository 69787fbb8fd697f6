import re
import tomllib

import pytest

from catro_deploy import resources
from catro_deploy.errors import StorageError, TargetError
from catro_deploy.targets import Target, add_target, load_target

CPU = resources.find("targets", "x86-cpu").read_text()
ORIN = resources.find("targets", "jetson-orin").read_text()
SHIPPED = resources.names("targets")
MODULES_AND_MODES = {
    "agx-orin-64gb": {"maxn", "50w", "15w"},  # 30 W is jetson-orin
    "agx-orin-32gb": {"maxn", "40w", "30w"},
    "orin-nx-16gb": {"maxn", "25w", "15w", "super-40w"},
    "orin-nx-8gb": {"maxn", "20w", "15w"},
    "orin-nano-8gb": {"15w", "super-25w", "super-maxn"},
    "orin-nano-4gb": {"10w"},
}

BOARD = """
extends = "jetson-orin"
title = "A board"
batch = 4

[gpu]
sms = 4
clock_mhz = 1000

[sources]
batch = "Four cameras."

[sources.gpu]
sms = "counted"
clock_mhz = "set by hand"
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The user's folder for targets; it does not exist yet."""
    monkeypatch.setenv("CATRO_CONFIG", str(tmp_path / "config"))
    return tmp_path / "config" / "targets"


def written(folder, text, name="mine.toml"):
    (folder / name).write_text(text)
    return folder / name


def test_x86_cpu():
    target = load_target("x86-cpu")
    assert (target.name, target.kind, target.runtime) == ("x86-cpu", "cpu", "onnxruntime")
    assert (target.precision, target.threads, target.batch) == ("fp32", 1, 1)
    assert (target.transport, target.gpu) == ("local", None)


def test_openvino_on_intels_devices():
    cpu = load_target("x86-cpu-openvino")
    assert (cpu.kind, cpu.runtime, cpu.precision, cpu.threads) == ("cpu", "openvino", "fp32", 1)
    for name in ("x86-igpu-openvino", "x86-npu-openvino"):
        target = load_target(name)
        assert (target.runtime.partition("-")[0], target.precision, target.gpu) == ("openvino", "fp16", None)
        assert "NOT RUN" in target.notes


@pytest.mark.parametrize(
    ("name", "runtime"),
    [("x86-cpu-openvino", "openvino-npu"), ("x86-igpu-openvino", "openvino"), ("x86-npu-openvino", "tensorrt")],
)
def test_a_runtime_of_another_device_is_refused(tmp_path, name, runtime):
    content = resources.find("targets", name).read_text()
    own = next(line for line in content.splitlines() if line.startswith("runtime"))
    with pytest.raises(TargetError, match=rf'kind "\w+" .*\b{runtime}\b'):
        load_target(written(tmp_path, content.replace(own, f'runtime = "{runtime}"')))


def test_arm_cpu():
    """An x86 computer cannot measure the latency of an Arm processor: it is measured on a device."""
    target = load_target("arm-cpu")
    assert (target.kind, target.runtime, target.precision) == ("cpu", "onnxruntime", "fp32")
    assert (target.threads, target.batch, target.transport) == (1, 1, "bundle")


def test_what_comes_with_the_package():
    jetsons = {f"jetson-{module}-{mode}" for module, modes in MODULES_AND_MODES.items() for mode in modes}
    gpus = {f"x86-gpu-{name}" for name in ("t4", "l4", "a10", "a100", "h100", "h200", "rtx4090")}
    named = {"arm-cpu", "x86-cpu", "x86-gpu", "jetson-orin", "jetson-thor", "jetson-xavier-nx"}
    named |= {"x86-cpu-openvino", "x86-igpu-openvino", "x86-npu-openvino"}
    assert set(SHIPPED) == jetsons | gpus | named


@pytest.mark.parametrize("name", SHIPPED)
def test_each_loads_and_gives_a_source_for_each_figure(name):
    target = load_target(name)
    assert target.name == name
    assert set(target.sources) == set(target.figures)
    assert {"precision", "batch"} <= set(target.figures)
    if target.gpu:
        assert (target.runtime, target.precision) == ("tensorrt", "fp16")
        assert {f"gpu.{figure}" for figure in type(target.gpu).model_fields} <= set(target.figures)
    assert Target.model_validate(target.model_dump()) == target


def test_titles_distinguish_them():
    assert len({load_target(name).title for name in SHIPPED}) == len(SHIPPED)


@pytest.mark.parametrize("name", [name for name in SHIPPED if load_target(name).gpu])
def test_the_rates_of_one_chip_are_those_of_its_generation(name):
    """fp16 tensor cores: 1024 operations/clock/SM on Volta, Turing and Ada, 2048 on Orin and A100; int8 has twice."""
    gpu = load_target(name).gpu
    generation = {"orin": 2048, "a100": 2048, "h100": 4096, "h200": 4096, "thor": 8192}
    rates = [rate for word, rate in generation.items() if word in name] or [1024]
    assert [gpu.fp16_flop_per_clock_per_sm] == rates
    assert gpu.int8_flop_per_clock_per_sm == 2 * rates[0]
    assert gpu.fp32_flop_per_clock_per_sm in (128, 256)


@pytest.mark.parametrize(
    ("name", "precision", "tera"),
    [
        ("jetson-orin", "fp16", 10.03),  # 8 SMs x 2048 x 0.612 GHz
        ("jetson-agx-orin-64gb-maxn", "int8", 85.2),  # half of the 170 sparse TOPS that NVIDIA advertises
        ("jetson-agx-orin-64gb-maxn", "fp32", 5.32),  # 2048 cores x 2 x 1.3 GHz
        ("jetson-orin-nano-8gb-super-maxn", "int8", 33.4),  # half of 67 sparse TOPS
        ("jetson-thor", "fp16", 257),  # an eighth of the 2070 sparse fp4 TFLOPS: 259
        ("jetson-xavier-nx", "fp16", 6.76),  # 6 x 1024 x 1.1 GHz
        ("x86-gpu", "fp16", 65.1),  # same as a T4
        ("x86-gpu-t4", "int8", 130),
        ("x86-gpu-l4", "fp16", 121),
        ("x86-gpu-a10", "fp16", 125),
        ("x86-gpu-a10", "fp32", 31.2),
        ("x86-gpu-a100", "fp16", 312),
        ("x86-gpu-a100", "fp32", 19.5),
        ("x86-gpu-h100", "fp16", 989),
        ("x86-gpu-h200", "int8", 1979),
        ("x86-gpu-rtx4090", "fp16", 330),
        ("x86-gpu-rtx4090", "fp32", 82.6),
    ],
)
def test_peaks_are_those_that_datasheets_print(name, precision, tera):
    assert load_target(name).gpu.peak_flops(precision) == pytest.approx(tera * 1e12, rel=0.005)


def test_a_mode_with_less_power_is_slower():
    peaks = [load_target(f"jetson-{name}").gpu.peak_flops("fp16") for name in ("agx-orin-64gb-15w", "orin")]
    peaks += [load_target(f"jetson-agx-orin-64gb-{mode}").gpu.peak_flops("fp16") for mode in ("50w", "maxn")]
    assert peaks == sorted(set(peaks))
    # The memory is slower as well: 256 bits at 2133 MHz instead of 3200 MHz, two transfers per clock.
    assert load_target("jetson-agx-orin-64gb-15w").gpu.bandwidth_gb_s == pytest.approx(32 * 2 * 2.133, abs=0.05)


def test_the_generic_gpu_says_that_it_assumes():
    sources = load_target("x86-gpu").sources
    assert all("ASSUMED" in source for figure, source in sources.items() if figure.startswith("gpu."))
    assert not any("ASSUMED" in source for source in load_target("x86-gpu-t4").sources.values())


def test_an_unknown_target_gets_the_nearest():
    with pytest.raises(TargetError, match=r"'x86_cpu'.*\bx86-cpu\b") as caught:
        load_target("x86_cpu")
    assert "x86-cpu" in caught.value.hint


def test_a_file_of_the_users_is_named_after_its_stem(tmp_path):
    target = load_target(written(tmp_path, CPU.replace("threads = 1", "threads = 4", 1), "my-box.toml"))
    assert (target.name, target.threads) == ("my-box", 4)


def test_what_a_file_need_not_say(tmp_path):
    target = load_target(written(tmp_path, CPU))
    assert (target.transport, target.power_mode) == ("local", "")
    assert "power_mode" not in target.figures


@pytest.mark.parametrize("form", ['[sources.gpu]\nsms = "x"', '"gpu.sms" = "x"', 'gpu.sms = "x"'])
def test_sources_of_the_gpu_can_be_written_in_every_way_of_toml(tmp_path, form):
    text = f'extends = "jetson-orin"\ntitle = "x"\n[gpu]\nsms = 3\n[sources]\n{form}\n'
    assert load_target(written(tmp_path, text)).sources["gpu.sms"] == "x"


def test_a_file_that_extends_another_holds_what_differs(tmp_path):
    board, orin = load_target(written(tmp_path, BOARD)), load_target("jetson-orin")
    assert (board.name, board.title, board.notes, board.batch) == ("mine", "A board", "", 4)
    assert (board.precision, board.power_mode, board.transport) == ("fp16", "MODE_30W", "bundle")
    assert board.gpu == orin.gpu.model_copy(update={"sms": 4, "clock_mhz": 1000.0})
    changed = {"batch": "Four cameras.", "gpu.sms": "counted", "gpu.clock_mhz": "set by hand"}
    assert board.sources == orin.sources | changed


def test_what_extends_another_can_be_extended(tmp_path):
    text = 'extends = "x86-gpu-h100"\ntitle = "CUDA"\nruntime = "onnxruntime-cuda"\n'
    text += '[gpu]\nl2_mib = 40\n[sources.gpu]\nl2_mib = "read"\n'
    mine, h100, any_gpu = load_target(written(tmp_path, text)), load_target("x86-gpu-h100"), load_target("x86-gpu")
    assert (mine.runtime, mine.title, mine.notes) == ("onnxruntime-cuda", "CUDA", "")
    assert mine.gpu == h100.gpu.model_copy(update={"l2_mib": 40.0})
    assert mine.sources == h100.sources | {"gpu.l2_mib": "read"}
    assert mine.sources["precision"] == any_gpu.sources["precision"]


@pytest.mark.parametrize(
    ("change", "explanation"),
    [
        (('batch = "Four cameras."', ""), r"\[sources\] lacks batch"),
        (('sms = "counted"', ""), r"\[sources\] lacks gpu\.sms"),
        (('title = "A board"', ""), "title: "),
        (('"jetson-orin"', '"jetson-orinn"'), "extends 'jetson-orinn'"),
        (('"jetson-orin"', '"../targets/jetson-orin"'), r"extends '\.\./targets/jetson-orin'"),
        (('"jetson-orin"', "7"), r"extends 7\b"),
        (("clock_mhz = 1000", "clock_mhz = 0"), r"gpu\.clock_mhz: .*\b0\b"),
        (("clock_mhz = 1000", "clock_mhz = inf"), r"gpu\.clock_mhz: .*finite"),
        (("clock_mhz = 1000", "clock_ghz = 1"), r"gpu\.clock_ghz: "),
        (("[gpu]\nsms = 4\nclock_mhz = 1000", "gpu = 4"), "gpu: .*table"),
    ],
)
def test_a_wrong_extension_is_explained(tmp_path, change, explanation):
    assert change[0] in BOARD
    with pytest.raises(TargetError, match=explanation):
        load_target(written(tmp_path, BOARD.replace(*change, 1)))


def test_a_shipped_file_that_extends_itself_would_be_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "folder", lambda kind: tmp_path)
    written(tmp_path, BOARD, "jetson-orin.toml")
    with pytest.raises(TargetError, match=r"extends 'jetson-orin', which extends it"):
        load_target("jetson-orin")


@pytest.mark.parametrize(
    ("change", "explanation"),
    [
        (("threads = 1", "threads = 0"), r"threads: .*\b0\b"),
        (("threads = 1", 'threads = "1"'), "threads: .*integer"),
        (("threads = 1\n", ""), 'kind "cpu" .*threads'),
        (("batch = 1", "batch = 1\nbatches = 1"), "batches: "),
        (("batch = 1", 'batch = 1\nname = "box"'), "name: "),
        (('runtime = "onnxruntime"', 'runtime = "tflite"'), "runtime: .*'onnxruntime'"),
        (('runtime = "onnxruntime"', 'runtime = "tensorrt"'), 'kind "cpu" .*tensorrt'),
        (('precision = "fp32"', 'precision = "int8"'), 'kind "cpu" .*fp32'),
        (('kind = "cpu"', 'kind = "gpu"'), r'kind "gpu" .*\[gpu\]'),
        (('batch = "A choice', 'bath = "A choice'), r"\[sources\] lacks batch"),
        (('batch = "A choice', 'clock = "x"\nbatch = "A choice'), r"\[sources\] has clock"),
        (('batch = "A choice', 'gpu.sms = "x"\nbatch = "A choice'), r"\[sources\] has gpu\.sms"),
        (("threads = 1", "threads 1"), r"line \d+"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path, change, explanation):
    assert change[0] in CPU
    file = written(tmp_path, CPU.replace(*change, 1))
    with pytest.raises(TargetError, match=explanation) as caught:
        load_target(file)
    assert str(file) in caught.value.problem
    assert "Value error" not in caught.value.problem


def test_a_wrong_gpu_is_compared_with_a_gpu(tmp_path):
    with pytest.raises(TargetError, match="threads") as caught:
        load_target(written(tmp_path, "threads = 2\n" + ORIN))
    assert str(resources.folder("targets") / "jetson-orin.toml") in caught.value.hint
    with pytest.raises(TargetError, match=r"gpu\.l2_mib"):
        load_target(written(tmp_path, re.sub(r"\nl2_mib = \".*", "", ORIN)))


def test_a_cpu_has_no_gpu(tmp_path):
    text = CPU + "\n[gpu]\n" + "\n".join(f"{k} = {v}" for k, v in tomllib.loads(ORIN)["gpu"].items())
    with pytest.raises(TargetError, match=r'kind "cpu" .*\[gpu\]'):
        load_target(written(tmp_path, text))


def test_a_target_that_is_added_is_known_by_its_name(tmp_path, config):
    assert add_target(written(tmp_path, BOARD, "board.toml")) == config / "board.toml"
    assert "board" in resources.names("targets")
    assert load_target("board") == load_target(tmp_path / "board.toml")
    assert add_target(tmp_path / "board.toml", "press-3.toml") == config / "press-3.toml"
    assert load_target("press-3").batch == 4


def test_an_own_target_stands_before_the_shipped_one_but_not_below_others(tmp_path, config):
    faster = load_target("jetson-agx-orin-64gb-maxn")
    add_target(written(tmp_path, BOARD), "jetson-orin")
    assert load_target("jetson-orin").gpu.sms == 4
    assert load_target("jetson-agx-orin-64gb-maxn") == faster


def test_nothing_is_replaced_unless_it_is_forced(tmp_path, config):
    file = written(tmp_path, BOARD)
    copy = add_target(file)
    written(tmp_path, BOARD.replace("batch = 4", "batch = 8"))
    with pytest.raises(TargetError, match="'mine'") as caught:
        add_target(file)
    assert "--force" in caught.value.hint
    assert load_target("mine").batch == 4
    assert add_target(file, force=True) == copy
    assert load_target("mine").batch == 8


@pytest.mark.parametrize("name", ["", "a/b", "..", "-x", "with space", ".hidden"])
def test_names_that_could_not_be_asked_for_are_refused(tmp_path, config, name):
    with pytest.raises(TargetError, match=re.escape(repr(name))):
        add_target(written(tmp_path, BOARD), name)
    assert not config.exists()


def test_what_is_no_target_is_not_added(tmp_path, config):
    with pytest.raises(TargetError, match="title: "):
        add_target(written(tmp_path, BOARD.replace('title = "A board"', "")))
    with pytest.raises(TargetError, match=r"missing\.toml"):
        add_target(tmp_path / "missing.toml")
    assert not config.exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path, config):
    config.parent.write_text("a file where the folder should be")
    with pytest.raises(StorageError, match=re.escape(str(config))):
        add_target(written(tmp_path, BOARD))
