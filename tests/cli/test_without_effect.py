"""Flags that have no effect with the other settings are refused; in catro.toml they are accepted."""

import pytest

from catro_deploy.cli.without_effect import require_effect
from catro_deploy.errors import SettingsError
from catro_deploy.files import write_text
from catro_deploy.settings import load_settings

ON_GPU = ("--target", "x86-gpu", "--budget", "50%flops")


@pytest.mark.parametrize(
    ("given", "said", "instead"),
    [
        (("--knobs", "depth"), "--knobs is for a search", "add --search."),
        (("--search-minutes", "3", "--no-search"), "--search-minutes is for a search", "add --search."),
        (("--qat-epochs", "3"), "--qat-epochs is for int8", "add --precision int8 (or auto)."),
        (("--qat-epochs", "3", "--precision", "fp16"), "--qat-epochs is for int8", "add --precision int8"),
        (("-o", "quantize.qat_learning_rate=0.1"), "-o quantize.qat_learning_rate is for int8", "add --precision"),
        (("--recipe", "standard"), "--recipe is for int8 and fp16", "add --precision int8 (or fp16, or auto)."),
        (("--level", "3"), "--level is for TensorRT", "name a target with TensorRT: catro-deploy targets list"),
        (("--dla", "0"), "--dla is for TensorRT", "name a target with TensorRT"),
        (("--rebuilds", "1"), "--rebuilds is for TensorRT", "name a target with TensorRT"),
        (("--transfers",), "--transfers is for TensorRT", "name a target with TensorRT"),
        (("--download", "--data", "signs"), "--download is for gtsrb", "add --data gtsrb."),
        (("--profile", "quick"), "--profile is for latency budgets on CPUs", "name one, such as --budget 0.5x."),
        (("--threads", "2", *ON_GPU), "--threads is for runtimes on the CPU", "name a target on a CPU"),
        (("--cuda-graph", "--target", "arm-cpu"), "--cuda-graph is for TensorRT", "name a target with TensorRT"),
    ],
)
def test_a_flag_without_effect_is_refused_before_anything_runs(catro, folder, given, said, instead):
    refused = catro("run", "--budget", "50%flops", *given)
    assert refused.exit_code == 2, refused.stderr
    assert said in refused.stderr
    assert f"out, or {instead}" in refused.stderr
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    "given",
    [
        ("--precision", "int8", "--qat-epochs", "3", "--recipe", "standard"),
        ("--qat-epochs", "0", "--rebuilds", "0", "--no-transfers", "--no-cuda-graph"),
        ("--budget", "0.5x", "--search", "--search-minutes", "3", "--knobs", "depth"),
        ("--budget", "0.5x", "--search", "--qat-epochs", "3"),  # whose variants differ in precision, too
        ("--budget", "0.5x", "--profile", "quick", "--threads", "2", "--download", "--data", "gtsrb"),
        ("--download", "--data", "package.module:factory"),
        (*ON_GPU, "--target", "x86-cpu", "--threads", "2"),
        (*ON_GPU, "--runtimes", "onnxruntime-cuda", "--threads", "2"),
        (*ON_GPU, "--level", "5", "--dla", "0", "--transfers", "--recipe", "standard"),
    ],
)
def test_a_flag_with_an_effect_or_without_a_request_is_not_refused(catro, given):
    done = catro("run", "--budget", "50%flops", *given)
    assert " is for " not in done.stderr


def test_values_in_a_file_that_other_targets_share_are_not_refused(catro, folder):
    more = "[build]\nlevel = 5\ndla = 0\n[bench]\ntransfers = true\n[quantize]\nqat_epochs = 3\n[search]\nminutes = 3\n"
    write_text(folder / "catro.toml", (folder / "catro.toml").read_text() + more)
    assert catro("run", "--budget", "50%flops").exit_code == 0


def test_a_command_that_continues_refuses_its_own_flags(catro):
    assert catro("prune", "--budget", "50%flops", "--run", "here", "-o", "quantize.qat_epochs=3").exit_code == 0
    for name, *given in (("bench", "--transfers"), ("quantize", "--precision", "fp16", "--qat-epochs", "3")):
        refused = catro(name, "--run", "here", *given)
        assert refused.exit_code == 2
        assert f"{given[-2] if len(given) > 1 else given[0]} is for " in refused.stderr


def test_pruning_alone_refuses_what_no_later_command_can_use(catro):
    for given in (("--profile", "quick"), ("--download", "--data", "signs"), ("--threads", "2", *ON_GPU)):
        refused = catro("prune", "--budget", "50%flops", *given)
        assert refused.exit_code == 2
        assert f"{given[0]} is for " in refused.stderr


def test_a_sweep_refuses_what_has_an_effect_in_no_cell(catro):
    refused = catro("sweep", "--budgets", "50%flops,40%flops", "--qat-epochs", "3")
    assert refused.exit_code == 2
    assert "--qat-epochs is for int8" in refused.stderr


def test_an_effect_in_one_cell_is_enough():
    flags = {"quantize": {"qat_epochs": 3}}
    floats, integers = (load_settings(None, {"quantize": {"precision": one}}) for one in ("fp32", "int8"))
    require_effect(flags, [floats, integers])
    with pytest.raises(SettingsError, match="--qat-epochs is for int8"):
        require_effect(flags, [floats, floats])
